#include "runtime/bench/plan.h"

#include <math.h>

#include "runtime/bench/routing.h"

enum { ALIGNMENT = 256, MAX_CACHES = 256, DECODE_TOKENS = 256, HISTORY = 4, ROUTINGS = 8 };

/* ---- laying out ---- */

static int64_t aligned(int64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static void add_part(struct bench_plan *plan, int64_t bytes)
{
    plan->parts[plan->num_parts++] = plan->set_bytes;
    plan->set_bytes += aligned(bytes);
}

static void add_fixed(struct bench_plan *plan, int64_t bytes)
{
    plan->fixed[plan->num_fixed++] = plan->fixed_bytes;
    plan->fixed_bytes += aligned(bytes);
}

static void *part(const struct bench_call *call, int i)
{
    return call->set + call->plan->parts[i];
}

static void *fixed(const struct bench_call *call, int i)
{
    return call->fixed + call->plan->fixed[i];
}

static int64_t qkv_width(const struct bench_sizes *s)
{
    return (int64_t)(s->num_heads + 2 * s->num_kv_heads) * s->head_size;
}

static int64_t cache_bytes(const struct bench_sizes *s, int64_t num_blocks)
{
    return num_blocks * s->block_size * s->num_kv_heads * s->head_size * dtype_size(s->cache);
}

static int64_t blocks_of(const struct bench_sizes *s, int64_t tokens)
{
    return (tokens + s->block_size - 1) / s->block_size;
}

/* A permutation of [0, num_blocks): in a pool that has been in use for a while, consecutive blocks of a sequence are
 * not consecutive in memory. (The identity if num_blocks is a multiple of the step.) */
static int64_t scattered(int64_t i, int64_t num_blocks)
{
    const int64_t step = 7919;
    return num_blocks % step ? i * step % num_blocks : i;
}

/* ---- linear ---- */

static enum dtype linear_out_dtype(const struct bench_sizes *s, const struct bench_case *c)
{
    return c->out_features == s->vocab_size ? DTYPE_FLOAT32 : s->activations;
}

struct weight bench_plan_weight(const struct bench_sizes *s, const struct bench_case *c)
{
    const bool of_experts = bench_plan_is_of_experts(c->operation);
    const struct bench_quantization *q = of_experts ? &s->expert_quantization : &s->quantization;
    struct weight w = {
        .format = weight_format_of(s->weights), .out_features = c->out_features, .in_features = c->in_features};
    const bool divided = q->group_size == 0 || c->in_features % q->group_size == 0;
    if (q->format < WEIGHT_FP8 || !divided || (c->out_features == s->vocab_size && !of_experts)) return w;
    w.format = q->format;
    w.scale_dtype = q->scale_dtype;
    w.scale_rows = q->scale_rows;
    w.group_size = q->group_size > 0 ? q->group_size : c->in_features;
    w.quantize_x = q->quantize_x;
    return w;
}

bool bench_plan_is_of_experts(enum bench_operation operation)
{
    return operation >= BENCH_ROUTE_EXPERTS && operation <= BENCH_EXPERTS_DOWN;
}

/* A weight in part 0, or those of all experts: data, then scales and zeros, each aligned. */
struct weight_layout {
    int64_t scales, zeros, bytes;
};

static int64_t zeros_bytes(const struct bench_sizes *s, const struct bench_case *c, const struct weight *w)
{
    const bool of_experts = bench_plan_is_of_experts(c->operation);
    const bool has_zeros = of_experts ? s->expert_quantization.has_zeros : s->quantization.has_zeros;
    return has_zeros && weight_is_quantized(w) ? w->out_features * weight_groups(w) : 0;
}

static struct weight_layout layout_of(const struct bench_sizes *s, const struct bench_case *c, const struct weight *w)
{
    const int64_t count = bench_plan_is_of_experts(c->operation) ? s->router.num_experts : 1;
    struct weight_layout l = {.scales = aligned(count * w->out_features * weight_row_bytes(w))};
    l.zeros = l.scales + aligned(count * weight_scale_count(w) * dtype_size(w->scale_dtype));
    l.bytes = l.zeros + count * zeros_bytes(s, c, w);
    return l;
}

/* Input and output have room for the tokens of quantized rows. */
static void plan_linear(const struct bench_sizes *s, const struct bench_case *c, struct bench_plan *plan)
{
    const struct weight w = bench_plan_weight(s, c);
    const struct weight_layout layout = layout_of(s, c, &w);
    const int64_t room = quantized_rows_padded(c->count), x = c->in_features * dtype_size(s->activations),
                  out = c->out_features * dtype_size(linear_out_dtype(s, c));
    add_part(plan, layout.bytes);
    add_part(plan, room * x);
    add_part(plan, room * out);
    plan->bytes = (double)(weight_bytes(&w) + zeros_bytes(s, c, &w) + c->count * (x + out));
    plan->operations = 2.0 * c->count * (double)c->out_features * (double)c->in_features;
}

static struct weight weight_of(const struct bench_call *call)
{
    struct weight w = bench_plan_weight(call->sizes, call->c);
    const struct weight_layout layout = layout_of(call->sizes, call->c, &w);
    uint8_t *data = part(call, 0);
    w.data = data;
    if (weight_is_quantized(&w)) w.scales = data + layout.scales;
    if (layout.bytes > layout.zeros) w.zeros = data + layout.zeros;
    return w;
}

/* The rows of x in 8 bits, for a backend that wants them so. */
static struct quantized_rows quantized_x(struct backend *b, const struct bench_call *call, const struct weight *w)
{
    const int32_t count = call->c->count;
    uint8_t *x = part(call, 1);
    if (!b->takes_quantized_rows || !b->takes_quantized_rows(b, w, count, call->sizes->activations))
        return (struct quantized_rows){0};
    return (struct quantized_rows){x, (float *)(x + quantized_rows_padded(count) * w->in_features), w->group_size};
}

static struct linear_args linear_args(const struct bench_call *call, const struct weight *w)
{
    return (struct linear_args){.out = part(call, 2),
                                .out_stride = call->c->out_features,
                                .out_dtype = linear_out_dtype(call->sizes, call->c),
                                .x = part(call, 1),
                                .x_stride = call->c->in_features,
                                .dtype = call->sizes->activations,
                                .num_tokens = call->c->count,
                                .weight = w};
}

static bool call_linear(struct backend *b, const struct bench_call *call)
{
    const struct weight w = weight_of(call);
    const struct quantized_rows rows = quantized_x(b, call, &w);
    struct linear_args args = linear_args(call, &w);
    if (rows.data) args.quantized_x = &rows;
    b->linear(b, &args);
    return true;
}

/* ---- norms and activation ---- */

static void plan_norm(const struct bench_sizes *s, const struct bench_case *c, struct bench_plan *plan)
{
    const int64_t tokens = (int64_t)c->count * s->hidden_size * dtype_size(s->activations);
    const int64_t gain = (int64_t)s->hidden_size * dtype_size(s->weights);
    add_part(plan, tokens);
    add_part(plan, tokens);
    add_part(plan, gain);
    /* rms_norm reads x and writes out; fused_add_rms_norm reads x and the residual stream and writes both. */
    plan->bytes = (double)((c->operation == BENCH_RMS_NORM ? 2 : 4) * tokens + gain);
}

static struct norm_params norm_params(const struct bench_call *call, int gain)
{
    return (struct norm_params){.gain = part(call, gain), .gain_dtype = call->sizes->weights, .eps = 1e-5f};
}

static bool call_norm(struct backend *b, const struct bench_call *call)
{
    const struct bench_sizes *s = call->sizes;
    const struct rms_norm_args args = {.out = part(call, 1),
                                       .x = part(call, 0),
                                       .out_stride = s->hidden_size,
                                       .x_stride = s->hidden_size,
                                       .norm = norm_params(call, 2),
                                       .num_tokens = call->c->count,
                                       .size = s->hidden_size,
                                       .dtype = s->activations};
    b->rms_norm(b, &args);
    return true;
}

static struct fused_add_rms_norm_args fused_norm_args(const struct bench_call *call)
{
    const struct bench_sizes *s = call->sizes;
    return (struct fused_add_rms_norm_args){.out = part(call, 0),
                                            .x = part(call, 0),
                                            .residual = part(call, 1),
                                            .multiplier = 1,
                                            .sum_multiplier = 1,
                                            .norm = norm_params(call, 2),
                                            .num_tokens = call->c->count,
                                            .size = s->hidden_size,
                                            .dtype = s->activations};
}

static bool call_fused_norm(struct backend *b, const struct bench_call *call)
{
    const struct fused_add_rms_norm_args args = fused_norm_args(call);
    b->fused_add_rms_norm(b, &args);
    return true;
}

static void plan_act(const struct bench_sizes *s, const struct bench_case *c, struct bench_plan *plan)
{
    const int64_t out = (int64_t)c->count * s->intermediate_size * dtype_size(s->activations);
    add_part(plan, 2 * out);
    add_part(plan, out);
    plan->bytes = 3 * (double)out;
}

static bool call_act(struct backend *b, const struct bench_call *call)
{
    const struct act_and_mul_args args = {.out = part(call, 1),
                                          .gate_up = part(call, 0),
                                          .activation = ACTIVATION_SILU,
                                          .num_tokens = call->c->count,
                                          .size = call->sizes->intermediate_size,
                                          .dtype = call->sizes->activations};
    b->act_and_mul(b, &args);
    return true;
}

/* ---- operations of ranks ---- */

bool bench_plan_is_of_ranks(enum bench_operation operation)
{
    return operation >= BENCH_ALL_REDUCE && operation <= BENCH_ALL_REDUCE_ADD_NORM;
}

/* A rank reads and writes its x, whichever way the other ranks' go. */
static void plan_all_reduce(const struct bench_sizes *s, const struct bench_case *c, struct bench_plan *plan)
{
    const int64_t tokens = (int64_t)c->count * s->hidden_size * dtype_size(s->activations);
    add_part(plan, tokens);
    plan->bytes = 2 * (double)tokens;
}

static bool call_all_reduce(struct backend *b, const struct bench_call *call)
{
    const struct bench_sizes *s = call->sizes;
    if (!b->all_reduce) return false;
    b->all_reduce(b, &(struct all_reduce_args){.x = part(call, 0),
                                               .count = (int64_t)call->c->count * s->hidden_size,
                                               .dtype = s->activations});
    return true;
}

static void plan_all_reduce_add_norm(const struct bench_sizes *s, const struct bench_case *c, struct bench_plan *plan)
{
    plan_norm(s, c, plan);
    add_part(plan, (int64_t)c->count * s->hidden_size * dtype_size(s->activations));
}

static bool call_all_reduce_add_norm(struct backend *b, const struct bench_call *call)
{
    struct fused_add_rms_norm_args args = fused_norm_args(call);
    args.out = part(call, 3);
    return b->all_reduce_add_norm && b->all_reduce_add_norm(b, &args);
}

/* ---- rotary embedding ---- */

static void plan_rotary(const struct bench_sizes *s, const struct bench_case *c, struct bench_plan *plan)
{
    const int64_t table = (int64_t)c->count * s->head_size * (int64_t)sizeof(float);
    const int64_t values = (int64_t)c->count * (s->num_heads + s->num_kv_heads) * s->head_size;
    add_part(plan, c->count * qkv_width(s) * dtype_size(s->activations));
    add_fixed(plan, (int64_t)c->count * (int64_t)sizeof(int32_t));
    add_fixed(plan, table);
    plan->bytes = (double)(2 * values * dtype_size(s->activations) + table);
}

/* The table of a true rotation: anything else, applied in place many times, would end in zeros or infinities. */
static void write_angles(const struct bench_sizes *s, int64_t positions, float *table)
{
    for (int64_t i = 0; i < positions * s->head_size; i++) table[i] = i % s->head_size < s->head_size / 2 ? 0.8f : 0.6f;
}

static void write_rotary(const struct bench_sizes *s, const struct bench_case *c, const struct bench_plan *plan,
                         uint8_t *data)
{
    int32_t *positions = (int32_t *)(data + plan->fixed[0]);
    float *table = (float *)(data + plan->fixed[1]);
    for (int32_t i = 0; i < c->count; i++) positions[i] = i;
    write_angles(s, c->count, table);
}

/* Query, key and value of each token lie side by side in part 0. positions, cos_sin: numbers of fixed operands. */
static struct rotary_args rotary_args(const struct bench_call *call, int positions, int cos_sin)
{
    const struct bench_sizes *s = call->sizes;
    const int64_t head = (int64_t)s->head_size * dtype_size(s->activations);
    uint8_t *qkv = part(call, 0);
    return (struct rotary_args){.query = qkv,
                                .key = qkv + s->num_heads * head,
                                .query_stride = qkv_width(s),
                                .key_stride = qkv_width(s),
                                .positions = fixed(call, positions),
                                .cos_sin = fixed(call, cos_sin),
                                .num_tokens = call->c->count,
                                .num_heads = s->num_heads,
                                .num_kv_heads = s->num_kv_heads,
                                .head_size = s->head_size,
                                .rotary_dim = s->head_size,
                                .dtype = s->activations};
}

static bool call_rotary(struct backend *b, const struct bench_call *call)
{
    const struct rotary_args args = rotary_args(call, 0, 1);
    b->rotary_embedding(b, &args);
    return true;
}

/* ---- writing the cache ---- */

/* Up to DECODE_TOKENS tokens belong to a decode step, each to a block of its own; more belong to a prompt. */
static int64_t written_blocks(const struct bench_sizes *s, const struct bench_case *c)
{
    return c->count <= DECODE_TOKENS ? c->count : blocks_of(s, c->count);
}

static void plan_reshape(const struct bench_sizes *s, const struct bench_case *c, struct bench_plan *plan)
{
    add_part(plan, c->count * qkv_width(s) * dtype_size(s->activations));
    add_part(plan, cache_bytes(s, written_blocks(s, c)));
    add_part(plan, cache_bytes(s, written_blocks(s, c)));
    add_fixed(plan, (int64_t)c->count * (int64_t)sizeof(int64_t));
    plan->bytes = 2.0 * c->count * s->num_kv_heads * s->head_size * (dtype_size(s->activations) + dtype_size(s->cache));
}

static void write_reshape(const struct bench_sizes *s, const struct bench_case *c, const struct bench_plan *plan,
                          uint8_t *data)
{
    int64_t *slots = (int64_t *)(data + plan->fixed[0]);
    const int64_t num_blocks = written_blocks(s, c);
    for (int64_t i = 0; i < c->count; i++) {
        const int64_t block = c->count <= DECODE_TOKENS ? i : i / s->block_size;
        slots[i] = scattered(block, num_blocks) * s->block_size + i % s->block_size;
    }
}

/* Key and value lie in part 0 as rotary_args has them. The caches are part k_cache and the next one, the slot mapping
 * is fixed operand `slots`. */
static struct reshape_and_cache_args cache_args(const struct bench_call *call, int k_cache, int slots)
{
    const struct bench_sizes *s = call->sizes;
    const int64_t head = (int64_t)s->head_size * dtype_size(s->activations);
    const uint8_t *qkv = part(call, 0);
    return (struct reshape_and_cache_args){.key = qkv + s->num_heads * head,
                                           .value = qkv + (s->num_heads + s->num_kv_heads) * head,
                                           .kv_stride = qkv_width(s),
                                           .k_cache = part(call, k_cache),
                                           .v_cache = part(call, k_cache + 1),
                                           .slot_mapping = fixed(call, slots),
                                           .num_tokens = call->c->count,
                                           .num_kv_heads = s->num_kv_heads,
                                           .head_size = s->head_size,
                                           .v_head_size = s->head_size,
                                           .block_size = s->block_size,
                                           .block_stride = (int64_t)s->num_kv_heads * s->head_size * s->block_size,
                                           .dtype = s->activations,
                                           .cache_dtype = s->cache,
                                           .kv_scales = fixed(call, call->plan->kv_scales)};
}

static bool call_reshape(struct backend *b, const struct bench_call *call)
{
    const struct reshape_and_cache_args args = cache_args(call, 1, 0);
    b->reshape_and_cache(b, &args);
    return true;
}

/* ---- attention ---- */

/* The sequences of a call, all of the same lengths; of decodes, with run_len entries each. */
struct sequences {
    int32_t count, query_len, seq_len, run_len;
    int64_t blocks_each;
};

static struct sequences sequences_of(const struct bench_sizes *s, const struct bench_case *c)
{
    const int32_t run_len = c->run_len > 0 ? c->run_len : 1;
    struct sequences q = {c->count / run_len, 1, c->context, run_len, 0};
    if (c->operation == BENCH_PAGED_ATTENTION_PREFILL || c->operation == BENCH_LATENT_ATTENTION_PREFILL)
        q = (struct sequences){1, c->count, c->count, 1, 0};
    q.blocks_each = blocks_of(s, q.seq_len);
    return q;
}

static void plan_sequences(const struct sequences *q, struct bench_plan *plan)
{
    const int64_t entries = (int64_t)q->count * q->run_len;
    add_fixed(plan, q->count * q->blocks_each * (int64_t)sizeof(int32_t)); /* block tables */
    add_fixed(plan, (entries + 1) * (int64_t)sizeof(int32_t));             /* query_start */
    add_fixed(plan, entries * (int64_t)sizeof(int32_t));                   /* seq_lens */
    add_fixed(plan, entries * (int64_t)sizeof(int32_t));                   /* state_indices */
}

/* Of a query and a token. A query attends to itself and to the tokens before it. */
static double pairs_of(const struct sequences *q)
{
    if (q->query_len > 1) return 0.5 * q->query_len * (q->query_len + 1.0);
    return (double)q->count * q->run_len * q->seq_len;
}

static void plan_attention(const struct bench_sizes *s, const struct bench_case *c, struct bench_plan *plan)
{
    const struct sequences q = sequences_of(s, c);
    const int64_t entries = (int64_t)q.count * q.run_len, tokens = entries * q.query_len;
    const int64_t element = dtype_size(s->activations);
    const int64_t out = tokens * s->num_heads * s->head_size * element;
    const int64_t cache = cache_bytes(s, q.count * q.blocks_each);
    add_part(plan, tokens * qkv_width(s) * element);
    add_part(plan, out);
    add_part(plan, cache);
    add_part(plan, cache);
    plan_sequences(&q, plan);
    plan->operations = 4 * pairs_of(&q) * s->num_heads * s->head_size;
    plan->bytes =
        2.0 * (double)out + 2.0 * (double)q.count * q.seq_len * s->num_kv_heads * s->head_size * dtype_size(s->cache);
}

static void write_attention(const struct bench_sizes *s, const struct bench_case *c, const struct bench_plan *plan,
                            uint8_t *data)
{
    const struct sequences q = sequences_of(s, c);
    const int64_t num_blocks = q.count * q.blocks_each;
    int32_t *tables = (int32_t *)(data + plan->fixed[0]), *query_start = (int32_t *)(data + plan->fixed[1]);
    int32_t *seq_lens = (int32_t *)(data + plan->fixed[2]), *state_indices = (int32_t *)(data + plan->fixed[3]);
    for (int64_t i = 0; i < num_blocks; i++) tables[i] = (int32_t)scattered(i, num_blocks);
    for (int32_t i = 0; i < q.count * q.run_len; i++) {
        query_start[i + 1] = (i + 1) * q.query_len;
        seq_lens[i] = q.seq_len - q.run_len + 1 + i % q.run_len;
        state_indices[i] = i / q.run_len;
    }
}

static struct attention_args attention_args(const struct bench_call *call, const struct attention_params *params)
{
    const struct bench_sizes *s = call->sizes;
    const struct sequences q = sequences_of(s, call->c);
    return (struct attention_args){.out = part(call, 1),
                                   .query = part(call, 0),
                                   .query_stride = qkv_width(s),
                                   .k_cache = part(call, 2),
                                   .v_cache = part(call, 3),
                                   .block_tables = fixed(call, 0),
                                   .block_table_stride = q.blocks_each,
                                   .seq_lens = fixed(call, 2),
                                   .query_start = fixed(call, 1),
                                   .state_indices = fixed(call, 3),
                                   .num_seqs = q.count * q.run_len,
                                   .num_heads = s->num_heads,
                                   .num_kv_heads = s->num_kv_heads,
                                   .head_size = s->head_size,
                                   .v_head_size = s->head_size,
                                   .block_size = s->block_size,
                                   .block_stride = (int64_t)s->num_kv_heads * s->head_size * s->block_size,
                                   .max_query_len = q.query_len,
                                   .max_seq_len = q.seq_len,
                                   .max_run_len = q.run_len,
                                   .dtype = s->activations,
                                   .cache_dtype = s->cache,
                                   .params = params};
}

static struct attention_params plain_attention(const struct bench_call *call)
{
    return (struct attention_params){.scale = 1 / sqrtf((float)call->sizes->head_size),
                                     .kv_scales = fixed(call, call->plan->kv_scales)};
}

static bool call_attention(struct backend *b, const struct bench_call *call)
{
    const struct attention_params params = plain_attention(call);
    const struct attention_args args = attention_args(call, &params);
    paged_attention(b, &args, call->c->operation == BENCH_PAGED_ATTENTION ? args.num_seqs : 0, args.num_seqs);
    return true;
}

/* ---- latent attention ---- */

static int64_t latent_size(const struct bench_sizes *s)
{
    return s->latent_rank + s->latent_rope;
}

/* Queries, results and the cache; then the fixed operands of attention. */
static void plan_latent(const struct bench_sizes *s, const struct bench_case *c, struct bench_plan *plan)
{
    const struct sequences q = sequences_of(s, c);
    const int64_t entries = (int64_t)q.count * q.run_len, rows = entries * q.query_len * s->latent_heads;
    const int64_t element = dtype_size(s->activations), vector = latent_size(s) * dtype_size(s->cache);
    add_part(plan, rows * latent_size(s) * element);
    add_part(plan, rows * s->latent_rank * element);
    add_part(plan, q.count * q.blocks_each * s->block_size * vector);
    plan_sequences(&q, plan);
    plan->operations = 2 * pairs_of(&q) * s->latent_heads * (double)(latent_size(s) + s->latent_rank);
    plan->bytes = (double)rows * (double)((latent_size(s) + s->latent_rank) * element) +
                  (double)q.count * q.seq_len * (double)vector;
}

static bool call_latent(struct backend *b, const struct bench_call *call)
{
    const struct bench_sizes *s = call->sizes;
    const struct sequences q = sequences_of(s, call->c);
    const int32_t entries = q.count * q.run_len;
    const struct latent_attention_args args = {.out = part(call, 1),
                                               .query = part(call, 0),
                                               .cache = part(call, 2),
                                               .block_tables = fixed(call, 0),
                                               .block_table_stride = q.blocks_each,
                                               .seq_lens = fixed(call, 2),
                                               .query_start = fixed(call, 1),
                                               .state_indices = fixed(call, 3),
                                               .num_seqs = entries,
                                               .num_decodes = q.query_len == 1 ? entries : 0,
                                               .num_heads = s->latent_heads,
                                               .rank = s->latent_rank,
                                               .rope = s->latent_rope,
                                               .block_size = s->block_size,
                                               .block_stride = s->block_size * latent_size(s),
                                               .num_tokens = entries * q.query_len,
                                               .max_query_len = q.query_len,
                                               .max_seq_len = q.seq_len,
                                               .max_run_len = q.run_len,
                                               .scale = 1 / sqrtf((float)latent_size(s)),
                                               .dtype = s->activations,
                                               .cache_dtype = s->cache,
                                               .kv_scales = fixed(call, call->plan->kv_scales)};
    b->latent_attention(b, &args);
    return true;
}

/* The matrices that queries are multiplied by, beside those of results; then x and out. */
static void plan_heads_linear(const struct bench_sizes *s, const struct bench_case *c, struct bench_plan *plan)
{
    const int64_t weight = (int64_t)s->latent_heads * s->latent_nope * s->latent_rank * dtype_size(s->activations);
    const int64_t x = c->count * (int64_t)s->latent_heads * (s->latent_nope + s->latent_rope);
    const int64_t out = c->count * (int64_t)s->latent_heads * latent_size(s), element = dtype_size(s->activations);
    add_part(plan, weight);
    add_part(plan, x * element);
    add_part(plan, out * element);
    plan->bytes = (double)(weight + (x + out) * element);
    plan->operations = 2.0 * c->count * s->latent_heads * (double)s->latent_nope * s->latent_rank;
}

static bool call_heads_linear(struct backend *b, const struct bench_call *call)
{
    const struct bench_sizes *s = call->sizes;
    const struct heads_linear_args args = {.out = part(call, 2),
                                           .x = part(call, 1),
                                           .out_stride = s->latent_heads * latent_size(s),
                                           .out_head_stride = latent_size(s),
                                           .x_stride = (int64_t)s->latent_heads * (s->latent_nope + s->latent_rope),
                                           .x_head_stride = s->latent_nope + s->latent_rope,
                                           .weight = part(call, 0),
                                           .weight_dtype = s->activations,
                                           .head_stride = (int64_t)s->latent_nope * s->latent_rank,
                                           .transposed = true,
                                           .num_tokens = call->c->count,
                                           .num_heads = s->latent_heads,
                                           .in_features = s->latent_nope,
                                           .out_features = s->latent_rank,
                                           .dtype = s->activations,
                                           .num_copied = s->latent_rope};
    b->heads_linear(b, &args);
    return true;
}

/* ---- copying blocks ---- */

static int32_t num_caches(const struct bench_sizes *s)
{
    return 2 * s->num_layers < MAX_CACHES ? 2 * s->num_layers : MAX_CACHES;
}

static void plan_copy(const struct bench_sizes *s, const struct bench_case *c, struct bench_plan *plan)
{
    const int64_t bytes = num_caches(s) * cache_bytes(s, 2 * (int64_t)c->count);
    add_part(plan, bytes);
    add_fixed(plan, c->count * (int64_t)sizeof(struct block_pair));
    plan->bytes = (double)bytes;
}

static void write_copy(const struct bench_sizes *s, const struct bench_case *c, const struct bench_plan *plan,
                       uint8_t *data)
{
    struct block_pair *pairs = (struct block_pair *)(data + plan->fixed[0]);
    (void)s;
    for (int32_t i = 0; i < c->count; i++) pairs[i] = (struct block_pair){.source = i, .destination = c->count + i};
}

static bool call_copy(struct backend *b, const struct bench_call *call)
{
    const struct bench_sizes *s = call->sizes;
    void *caches[MAX_CACHES];
    for (int32_t i = 0; i < num_caches(s); i++)
        caches[i] = (uint8_t *)part(call, 0) + i * cache_bytes(s, 2 * (int64_t)call->c->count);
    const struct copy_blocks_args args = {.caches = caches,
                                          .num_caches = num_caches(s),
                                          .block_bytes = cache_bytes(s, 1),
                                          .pairs = fixed(call, 0),
                                          .num_pairs = call->c->count};
    b->copy_blocks(b, &args);
    return true;
}

/* ---- swapping blocks ---- */

static void plan_swap(const struct bench_sizes *s, const struct bench_case *c, struct bench_plan *plan)
{
    plan->host_bytes = num_caches(s) * cache_bytes(s, c->count);
    add_part(plan, plan->host_bytes);
    plan->bytes = 2 * (double)plan->host_bytes;
    plan->link_bytes = (double)plan->host_bytes;
}

static bool call_swap(struct backend *b, const struct bench_call *call)
{
    const struct bench_sizes *s = call->sizes;
    const int32_t num_blocks = call->c->count;
    struct block_pair pairs[PLAN_MAX_SWAPS];
    void *device[MAX_CACHES], *host[MAX_CACHES];
    for (int32_t i = 0; i < num_caches(s); i++) {
        device[i] = (uint8_t *)part(call, 0) + i * cache_bytes(s, num_blocks);
        host[i] = call->host + i * cache_bytes(s, num_blocks);
    }
    for (int32_t i = 0; i < num_blocks; i++)
        pairs[i] = (struct block_pair){.source = i, .destination = (int32_t)scattered(i, num_blocks)};
    const struct swap_blocks_args args = {.sources = call->c->swap_in ? host : device,
                                          .destinations = call->c->swap_in ? device : host,
                                          .num_caches = num_caches(s),
                                          .block_bytes = cache_bytes(s, 1),
                                          .pairs = pairs,
                                          .num_pairs = num_blocks};
    b->swap_blocks(b, &args, NULL);
    return true;
}

/* ---- sampling ---- */

static void plan_sample(const struct bench_sizes *s, const struct bench_case *c, struct bench_plan *plan)
{
    const int64_t logits = (int64_t)c->count * s->vocab_size * (int64_t)sizeof(float);
    const int64_t integers = c->count * (int64_t)sizeof(int32_t);
    add_part(plan, logits);
    add_fixed(plan, integers); /* state_indices */
    add_fixed(plan, integers); /* output_positions */
    add_fixed(plan, integers); /* token_ids */
    add_fixed(plan, HISTORY * integers);
    add_fixed(plan, c->count * (int64_t)sizeof(struct sampling_state));
    plan->bytes = (double)logits;
}

static void write_sample(const struct bench_sizes *s, const struct bench_case *c, const struct bench_plan *plan,
                         uint8_t *data)
{
    int32_t *state_indices = (int32_t *)(data + plan->fixed[0]);
    struct sampling_state *states = (struct sampling_state *)(data + plan->fixed[4]);
    (void)s;
    for (int32_t i = 0; i < c->count; i++) {
        state_indices[i] = i;
        /* The logits' standard deviation is about 0.3. Divided by a temperature of 0.1 it is 3, as a model's is. */
        states[i] = (struct sampling_state){.temperature = c->top_p ? 0.1f : 0,
                                            .top_p = c->top_p ? 0.9f : 1,
                                            .repetition_penalty = 1,
                                            .seed = (uint64_t)i,
                                            .num_logprobs = -1};
    }
}

static bool call_sample(struct backend *b, const struct bench_call *call)
{
    const struct sample_args args = {.logits = part(call, 0),
                                     .logits_stride = call->sizes->vocab_size,
                                     .num_samples = call->c->count,
                                     .vocab_size = call->sizes->vocab_size,
                                     .state_indices = fixed(call, 0),
                                     .output_positions = fixed(call, 1),
                                     .states = fixed(call, 4),
                                     .history = fixed(call, 3),
                                     .history_stride = HISTORY,
                                     .any_random = call->c->top_p,
                                     .token_ids = fixed(call, 2)};
    b->sample(b, &args);
    return true;
}

/* ---- mixtures of experts ---- */

/* The four arrays of a plan, one behind the other, in bytes from the first. */
struct plan_layout {
    int64_t tokens, rows, weights, bytes;
};

static struct plan_layout plan_layout_of(const struct bench_sizes *s, const struct bench_case *c)
{
    const int64_t assignments = aligned((int64_t)c->count * s->router.top_k * (int64_t)sizeof(int32_t));
    const int64_t tokens = aligned((s->router.num_experts + 1) * (int64_t)sizeof(int32_t));
    return (struct plan_layout){tokens, tokens + assignments, tokens + 2 * assignments, tokens + 3 * assignments};
}

static struct expert_plan expert_plan_at(const struct bench_sizes *s, const struct bench_case *c, uint8_t *data)
{
    const struct plan_layout l = plan_layout_of(s, c);
    return (struct expert_plan){(int32_t *)data, (int32_t *)(data + l.tokens), (int32_t *)(data + l.rows),
                                (float *)(data + l.weights)};
}

static void plan_route(const struct bench_sizes *s, const struct bench_case *c, struct bench_plan *plan)
{
    const int64_t logits = (int64_t)c->count * s->router.num_experts * (int64_t)sizeof(float);
    const int64_t arrays = s->router.num_experts + 1 + 3 * (int64_t)c->count * s->router.top_k;
    add_part(plan, logits);
    add_part(plan, plan_layout_of(s, c).bytes);
    plan->bytes = (double)(logits + arrays * (int64_t)sizeof(int32_t));
}

static bool call_route(struct backend *b, const struct bench_call *call)
{
    const struct route_experts_args args = {.plan = expert_plan_at(call->sizes, call->c, part(call, 1)),
                                            .logits = part(call, 0),
                                            .router = call->sizes->router,
                                            .num_tokens = call->c->count};
    b->route_experts(b, &args);
    return true;
}

static struct bench_routing routing_of(const struct bench_sizes *s, const struct bench_case *c, int32_t number)
{
    return (struct bench_routing){s->router.num_experts, s->router.top_k, c->count, number, c->same_experts};
}

/* x, which experts_gate_up reads a row of for each token and experts_down for each assignment; out, the other way
 * round; and the scratch of either. The plans of several routings are fixed, so that calls one after the other read
 * different experts. */
static void plan_experts(const struct bench_sizes *s, const struct bench_case *c, struct bench_plan *plan)
{
    const struct weight w = bench_plan_weight(s, c);
    const int64_t T = c->count, A = T * s->router.top_k, size = dtype_size(s->activations);
    const bool down = c->operation == BENCH_EXPERTS_DOWN;
    const int64_t x = (down ? A : T) * c->in_features * size;
    const int64_t out = (down ? T * c->out_features : A * s->expert_size) * size;
    const int64_t widest = c->in_features > c->out_features ? c->in_features : c->out_features;
    double experts = 0;
    add_part(plan, layout_of(s, c, &w).bytes);
    add_part(plan, x);
    add_part(plan, out);
    add_part(plan, A * (widest * size + (int64_t)sizeof(float)));
    for (int32_t i = 0; i < ROUTINGS; i++) {
        const struct bench_routing routing = routing_of(s, c, i);
        experts += (double)bench_routing_experts(&routing) / ROUTINGS;
        add_fixed(plan, plan_layout_of(s, c).bytes);
    }
    plan->bytes = experts * (double)(weight_bytes(&w) + zeros_bytes(s, c, &w)) + (double)(x + out);
    plan->operations = 2.0 * (double)A * (double)c->out_features * (double)c->in_features;
}

static void write_experts(const struct bench_sizes *s, const struct bench_case *c, const struct bench_plan *plan,
                          uint8_t *data)
{
    for (int32_t i = 0; i < ROUTINGS; i++) {
        const struct bench_routing routing = routing_of(s, c, i);
        const struct expert_plan of_routing = expert_plan_at(s, c, data + plan->fixed[i]);
        bench_routing_write(&routing, &of_routing);
    }
}

static bool call_gate_up_of_experts(struct backend *b, const struct bench_call *call)
{
    const struct bench_sizes *s = call->sizes;
    const struct weight w = weight_of(call);
    const struct experts_gate_up_args args = {
        .out = part(call, 2),
        .x = part(call, 1),
        .gate_up = {&w, .stacked = true, .num_parts = 1},
        .gate = s->expert_gate,
        .plan = expert_plan_at(s, call->c, fixed(call, (int)(call->number % ROUTINGS))),
        .scratch = part(call, 3),
        .num_tokens = call->c->count,
        .num_experts = s->router.num_experts,
        .top_k = s->router.top_k,
        .size = s->expert_size,
        .dtype = s->activations};
    b->experts_gate_up(b, &args);
    return true;
}

static bool call_down_of_experts(struct backend *b, const struct bench_call *call)
{
    const struct bench_sizes *s = call->sizes;
    const struct weight w = weight_of(call);
    const struct experts_down_args args = {.out = part(call, 2),
                                           .x = part(call, 1),
                                           .down = {&w, .stacked = true, .num_parts = 1},
                                           .plan =
                                               expert_plan_at(s, call->c, fixed(call, (int)(call->number % ROUTINGS))),
                                           .scratch = part(call, 3),
                                           .num_tokens = call->c->count,
                                           .num_experts = s->router.num_experts,
                                           .top_k = s->router.top_k,
                                           .size = s->expert_size,
                                           .dtype = s->activations};
    b->experts_down(b, &args);
    return true;
}

/* ---- recurrent layers ---- */

static int32_t recurrent_sequences(const struct bench_case *c)
{
    return c->prompt ? 1 : c->count;
}

/* Of q, k and v, which lie side by side. */
static int64_t recurrent_channels(const struct bench_sizes *s)
{
    const struct recurrence_params *r = &s->recurrence;
    return 2 * (int64_t)r->num_k_heads * r->k_size + (int64_t)r->num_v_heads * r->v_size;
}

static int64_t v_elements(const struct bench_sizes *s)
{
    return (int64_t)s->recurrence.num_v_heads * s->recurrence.v_size;
}

/* Elements of a. */
static int64_t a_elements(const struct bench_sizes *s)
{
    const bool of_channels = s->recurrence.kind == RECURRENCE_DELTA_CHANNELS;
    return (int64_t)s->recurrence.num_v_heads * (of_channels ? s->recurrence.k_size : 1);
}

/* Part 0 is the input, part 1 the output and part 2 the states, behind the null slot. Where entries begin is fixed, and
 * so are their slots. */
static void plan_states(const struct bench_sizes *s, const struct bench_case *c, int64_t out, int64_t state,
                        struct bench_plan *plan)
{
    const int64_t n = recurrent_sequences(c), element = dtype_size(s->activations), x = recurrent_channels(s);
    add_part(plan, c->count * x * element);
    add_part(plan, c->count * out * element);
    add_part(plan, (n + 1) * state * (int64_t)sizeof(float));
    add_fixed(plan, (n + 1) * (int64_t)sizeof(int32_t));
    add_fixed(plan, n * (int64_t)sizeof(int32_t));
    plan->bytes = (double)(c->count * (x + out) * element + 2 * n * state * (int64_t)sizeof(float));
}

static void write_states(const struct bench_sizes *s, const struct bench_case *c, const struct bench_plan *plan,
                         uint8_t *data)
{
    (void)s;
    int32_t *query_start = (int32_t *)(data + plan->fixed[0]), *slots = (int32_t *)(data + plan->fixed[1]);
    for (int32_t i = 0; i < recurrent_sequences(c); i++) {
        query_start[i + 1] = c->prompt ? c->count : i + 1;
        slots[i] = i + 1;
    }
}

static struct state_batch state_batch_of(const struct bench_call *call)
{
    const struct bench_case *c = call->c;
    return (struct state_batch){.query_start = fixed(call, 0),
                                .sources = fixed(call, 1),
                                .slots = fixed(call, 1),
                                .num_seqs = recurrent_sequences(c),
                                .num_decodes = c->prompt ? 0 : c->count,
                                .num_tokens = c->count,
                                .max_query_len = c->prompt ? c->count : 1,
                                .max_run_len = 1};
}

static void plan_short_conv(const struct bench_sizes *s, const struct bench_case *c, struct bench_plan *plan)
{
    const int64_t channels = recurrent_channels(s), weight = channels * s->conv_width * (int64_t)sizeof(float);
    plan_states(s, c, channels, channels * (s->conv_width - 1), plan);
    add_part(plan, weight);
    plan->bytes += (double)weight;
}

static struct short_conv_args conv_args_of(const struct bench_call *call)
{
    const struct bench_sizes *s = call->sizes;
    const int64_t channels = recurrent_channels(s);
    return (struct short_conv_args){.out = part(call, 1),
                                    .x = part(call, 0),
                                    .x_stride = channels,
                                    .weight = part(call, 3),
                                    .silu = true,
                                    .channels = (int32_t)channels,
                                    .width = s->conv_width,
                                    .states = part(call, 2),
                                    .state_stride = channels * (s->conv_width - 1),
                                    .batch = state_batch_of(call),
                                    .dtype = s->activations};
}

static bool call_short_conv(struct backend *b, const struct bench_call *call)
{
    const struct short_conv_args args = conv_args_of(call);
    if (!b->short_conv) return false;
    b->short_conv(b, &args);
    return true;
}

/* Then come a and b, side by side, and the learnt numbers. */
static void plan_recurrence(const struct bench_sizes *s, const struct bench_case *c, struct bench_plan *plan)
{
    const int64_t state = v_elements(s) * s->recurrence.k_size;
    plan_states(s, c, v_elements(s), state, plan);
    add_part(plan, c->count * (a_elements(s) + s->recurrence.num_v_heads) * dtype_size(s->activations));
    add_part(plan, (s->recurrence.num_v_heads + a_elements(s)) * (int64_t)sizeof(float));
}

static struct recurrence_args recurrence_args_of(const struct bench_call *call, struct recurrence_params *params)
{
    const struct bench_sizes *s = call->sizes;
    const int64_t size = dtype_size(s->activations), k_elements = s->recurrence.num_k_heads * s->recurrence.k_size;
    const float *numbers = part(call, 4);
    const uint8_t *q = part(call, 0), *a = part(call, 3);
    *params = s->recurrence;
    params->a_log = numbers, params->dt_bias = numbers + params->num_v_heads;
    return (struct recurrence_args){.out = part(call, 1),
                                    .q = q,
                                    .k = q + k_elements * size,
                                    .v = q + 2 * k_elements * size,
                                    .a = a,
                                    .b = a + a_elements(s) * size,
                                    .qkv_stride = recurrent_channels(s),
                                    .a_stride = a_elements(s) + params->num_v_heads,
                                    .b_stride = a_elements(s) + params->num_v_heads,
                                    .states = part(call, 2),
                                    .state_stride = v_elements(s) * params->k_size,
                                    .batch = state_batch_of(call),
                                    .params = params,
                                    .dtype = s->activations};
}

static bool call_recurrence(struct backend *b, const struct bench_call *call)
{
    struct recurrence_params params;
    const struct recurrence_args args = recurrence_args_of(call, &params);
    if (!b->recurrence) return false;
    b->recurrence(b, &args);
    return true;
}

/* The operands of recurrence; the gate and the gain of the norm; weights, states and results of the convolution, which
 * reads part 0. */
static void plan_decode_recurrence(const struct bench_sizes *s, const struct bench_case *c, struct bench_plan *plan)
{
    const int64_t element = dtype_size(s->activations), channels = recurrent_channels(s);
    const int64_t gate = c->count * v_elements(s) * element, gain = s->gated_norm.gain_size * dtype_size(s->weights);
    const int64_t weight = channels * s->conv_width * (int64_t)sizeof(float);
    const int64_t window = channels * (s->conv_width - 1) * (int64_t)sizeof(float);
    plan_recurrence(s, c, plan);
    add_part(plan, gate);
    add_part(plan, gain);
    add_part(plan, weight);
    add_part(plan, (c->count + 1) * window);
    add_part(plan, c->count * channels * element);
    plan->bytes += (double)(gate + gain + weight + 2 * c->count * window);
}

static struct gated_norm_args norm_args_of(const struct bench_call *call)
{
    const struct bench_sizes *s = call->sizes;
    struct gated_norm_args args = s->gated_norm;
    args.out = part(call, 1), args.x = args.out, args.gate = part(call, 5);
    args.gate_stride = v_elements(s);
    args.gain = args.gain_size > 0 ? part(call, 6) : NULL;
    args.gain_dtype = s->weights;
    args.num_tokens = call->c->count;
    args.size = (int32_t)v_elements(s);
    args.dtype = s->activations;
    return args;
}

static bool call_decode_recurrence(struct backend *b, const struct bench_call *call)
{
    const struct bench_sizes *s = call->sizes;
    const int64_t size = dtype_size(s->activations), k_elements = s->recurrence.num_k_heads * s->recurrence.k_size;
    struct recurrence_params params;
    struct decode_recurrence_args args = {.recurrence = recurrence_args_of(call, &params), .norm = norm_args_of(call)};
    const uint8_t *mixed = part(call, 9);
    args.conv = conv_args_of(call);
    args.conv.out = part(call, 9), args.conv.weight = part(call, 7), args.conv.states = part(call, 8);
    args.recurrence.q = mixed, args.recurrence.k = mixed + k_elements * size;
    args.recurrence.v = mixed + 2 * k_elements * size;
    return b->decode_recurrence && b->decode_recurrence(b, &args);
}

/* ---- fused operations ---- */

/* The operands of linear, then the norm's gain. */
static void plan_fused_linear(const struct bench_sizes *s, const struct bench_case *c, struct bench_plan *plan)
{
    plan_linear(s, c, plan);
    const int64_t gain = c->in_features * dtype_size(s->weights);
    const double out = (double)c->count * (double)c->out_features * dtype_size(linear_out_dtype(s, c));
    add_part(plan, gain);
    plan->bytes += (double)gain;
    if (c->operation == BENCH_LINEAR_RESIDUAL) plan->bytes += out - (double)gain; /* reads the residual stream */
    if (c->operation == BENCH_GATE_UP) plan->bytes -= out / 2;
}

static bool call_fused_linear(struct backend *b, const struct bench_call *call)
{
    const struct weight w = weight_of(call);
    const struct linear_args linear = linear_args(call, &w);
    if (call->c->operation == BENCH_LINEAR_RESIDUAL) return b->linear_residual && b->linear_residual(b, &linear);
    const struct norm_linear_args args = {linear, norm_params(call, 3)};
    return b->norm_linear && b->norm_linear(b, &args);
}

/* With the norm if the backend takes that for so many tokens, else without it. */
static bool call_gate_up(struct backend *b, const struct bench_call *call)
{
    const struct weight w = weight_of(call);
    const struct norm_params norm = norm_params(call, 3);
    struct gate_up_args args = {
        .linear = linear_args(call, &w), .norm = &norm, .gate = {.activation = ACTIVATION_SILU}};
    args.linear.out_stride = call->c->out_features / 2;
    if (!b->gate_up) return false;
    if (b->gate_up(b, &args)) return true;
    args.norm = NULL;
    return b->gate_up(b, &args);
}

/* The operands of attention, then positions, the table of one position, and the slot of each entry's token. */
static void plan_decode_attention(const struct bench_sizes *s, const struct bench_case *c, struct bench_plan *plan)
{
    plan_attention(s, c, plan);
    add_fixed(plan, c->count * (int64_t)sizeof(int32_t));
    add_fixed(plan, s->head_size * (int64_t)sizeof(float));
    add_fixed(plan, c->count * (int64_t)sizeof(int64_t));
}

static void write_decode_attention(const struct bench_sizes *s, const struct bench_case *c,
                                   const struct bench_plan *plan, uint8_t *data)
{
    const struct sequences q = sequences_of(s, c);
    const int32_t *tables = (const int32_t *)(data + plan->fixed[0]);
    float *angles = (float *)(data + plan->fixed[5]);
    int64_t *slots = (int64_t *)(data + plan->fixed[6]);
    write_attention(s, c, plan, data);
    write_angles(s, 1, angles);
    for (int32_t i = 0; i < c->count; i++) {
        const int32_t token = q.seq_len - q.run_len + i % q.run_len, block = token / s->block_size;
        slots[i] = (int64_t)tables[i / q.run_len * q.blocks_each + block] * s->block_size + token % s->block_size;
    }
}

static bool call_decode_attention(struct backend *b, const struct bench_call *call)
{
    const struct attention_params params = plain_attention(call);
    const struct decode_attention_args args = {
        .rotary = rotary_args(call, 4, 5), .cache = cache_args(call, 2, 6), .attention = attention_args(call, &params)};
    return b->decode_attention && b->decode_attention(b, &args);
}

/* ---- the table ---- */

struct operation {
    const char *name;
    void (*plan)(const struct bench_sizes *s, const struct bench_case *c, struct bench_plan *plan);
    void (*write)(const struct bench_sizes *s, const struct bench_case *c, const struct bench_plan *plan,
                  uint8_t *data); /* NULL: nothing is fixed */
    bool (*call)(struct backend *b, const struct bench_call *call);
};

static const struct operation operations[BENCH_NUM_OPERATIONS] = {
    [BENCH_LINEAR] = {"linear", plan_linear, NULL, call_linear},
    [BENCH_RMS_NORM] = {"rms_norm", plan_norm, NULL, call_norm},
    [BENCH_FUSED_ADD_RMS_NORM] = {"fused_add_rms_norm", plan_norm, NULL, call_fused_norm},
    [BENCH_ROTARY_EMBEDDING] = {"rotary_embedding", plan_rotary, write_rotary, call_rotary},
    [BENCH_RESHAPE_AND_CACHE] = {"reshape_and_cache", plan_reshape, write_reshape, call_reshape},
    [BENCH_ACT_AND_MUL] = {"act_and_mul", plan_act, NULL, call_act},
    [BENCH_PAGED_ATTENTION] = {"paged_attention", plan_attention, write_attention, call_attention},
    [BENCH_PAGED_ATTENTION_PREFILL] = {"paged_attention_prefill", plan_attention, write_attention, call_attention},
    [BENCH_COPY_BLOCKS] = {"copy_blocks", plan_copy, write_copy, call_copy},
    [BENCH_SWAP_BLOCKS] = {"swap_blocks", plan_swap, NULL, call_swap},
    [BENCH_SAMPLE] = {"sample", plan_sample, write_sample, call_sample},
    [BENCH_ROUTE_EXPERTS] = {"route_experts", plan_route, NULL, call_route},
    [BENCH_EXPERTS_GATE_UP] = {"experts_gate_up", plan_experts, write_experts, call_gate_up_of_experts},
    [BENCH_EXPERTS_DOWN] = {"experts_down", plan_experts, write_experts, call_down_of_experts},
    [BENCH_SHORT_CONV] = {"short_conv", plan_short_conv, write_states, call_short_conv},
    [BENCH_RECURRENCE] = {"recurrence", plan_recurrence, write_states, call_recurrence},
    [BENCH_DECODE_RECURRENCE] = {"decode_recurrence", plan_decode_recurrence, write_states, call_decode_recurrence},
    [BENCH_HEADS_LINEAR] = {"heads_linear", plan_heads_linear, NULL, call_heads_linear},
    [BENCH_LATENT_ATTENTION] = {"latent_attention", plan_latent, write_attention, call_latent},
    [BENCH_LATENT_ATTENTION_PREFILL] = {"latent_attention_prefill", plan_latent, write_attention, call_latent},
    [BENCH_ALL_REDUCE] = {"all_reduce", plan_all_reduce, NULL, call_all_reduce},
    [BENCH_NCCL_ALL_REDUCE] = {"nccl_all_reduce", plan_all_reduce, NULL, call_all_reduce},
    [BENCH_ALL_REDUCE_ADD_NORM] = {"all_reduce_add_norm", plan_all_reduce_add_norm, NULL, call_all_reduce_add_norm},
    [BENCH_NORM_LINEAR] = {"norm_linear", plan_fused_linear, NULL, call_fused_linear},
    [BENCH_LINEAR_RESIDUAL] = {"linear_residual", plan_fused_linear, NULL, call_fused_linear},
    [BENCH_GATE_UP] = {"gate_up", plan_fused_linear, NULL, call_gate_up},
    [BENCH_DECODE_ATTENTION] = {"decode_attention", plan_decode_attention, write_decode_attention,
                                call_decode_attention},
};

const char *bench_operation_name(enum bench_operation operation)
{
    return operations[operation].name;
}

void bench_plan_make(const struct bench_sizes *sizes, const struct bench_case *c, struct bench_plan *plan)
{
    *plan = (struct bench_plan){0};
    operations[c->operation].plan(sizes, c, plan);
    plan->kv_scales = plan->num_fixed;
    add_fixed(plan, 2 * sizeof(float));
}

void bench_plan_write(const struct bench_sizes *sizes, const struct bench_case *c, const struct bench_plan *plan,
                      uint8_t *data)
{
    float *kv_scales = (float *)(data + plan->fixed[plan->kv_scales]);
    kv_scales[0] = kv_scales[1] = 1;
    if (operations[c->operation].write) operations[c->operation].write(sizes, c, plan, data);
}

bool bench_plan_call(struct backend *b, const struct bench_call *call)
{
    return operations[call->c->operation].call(b, call);
}
