#include "tests/support/fused_backend.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static int32_t largest;
static struct fused_calls *counted;

static bool is_taken(int32_t num_tokens, enum dtype dtype, int *count)
{
    if (dtype != DTYPE_FLOAT32) abort();
    if (num_tokens > largest) return false;
    ++*count;
    return true;
}

static float *allocate(int64_t count)
{
    float *data = malloc((size_t)count * sizeof *data + 1);
    assert(data);
    return data;
}

/* The input of a linear operation, normed, contiguous. */
static float *normed(struct backend *b, const struct linear_args *l, const struct norm_params *norm)
{
    const int32_t size = (int32_t)l->weight->in_features;
    float *out = allocate(l->num_tokens * (int64_t)size);
    const struct rms_norm_args args = {.out = out,
                                       .x = l->x,
                                       .out_stride = size,
                                       .x_stride = l->x_stride,
                                       .norm = *norm,
                                       .num_tokens = l->num_tokens,
                                       .size = size,
                                       .dtype = l->dtype};
    b->rms_norm(b, &args);
    return out;
}

static bool norm_linear(struct backend *b, const struct norm_linear_args *args)
{
    struct linear_args linear = args->linear;
    if (!is_taken(linear.num_tokens, linear.dtype, &counted->norm_linear)) return false;
    float *x = normed(b, &linear, &args->norm);
    linear.x = x;
    linear.x_stride = linear.weight->in_features;
    b->linear(b, &linear);
    free(x);
    return true;
}

static bool linear_residual(struct backend *b, const struct linear_args *args)
{
    struct linear_args linear = *args;
    const int64_t size = args->weight->out_features;
    float *residual = args->out;
    if (!is_taken(args->num_tokens, args->dtype, &counted->linear_residual)) return false;
    float *added = allocate(args->num_tokens * size);
    linear.out = added;
    linear.out_stride = size;
    b->linear(b, &linear);
    for (int64_t t = 0; t < args->num_tokens; t++)
        for (int64_t i = 0; i < size; i++) residual[t * args->out_stride + i] += added[t * size + i];
    free(added);
    return true;
}

static bool gate_up(struct backend *b, const struct gate_up_args *args)
{
    struct linear_args linear = args->linear;
    const int64_t width = linear.weight->out_features, size = width / gate_operands(&args->gate);
    if (!is_taken(linear.num_tokens, linear.dtype, &counted->gate_up)) return false;
    assert(linear.out_stride == size);
    float *x = args->norm ? normed(b, &linear, args->norm) : NULL, *wide = allocate(linear.num_tokens * width);
    if (x) {
        linear.x = x;
        linear.x_stride = linear.weight->in_features;
    }
    linear.out = wide;
    linear.out_stride = width;
    b->linear(b, &linear);
    const struct act_and_mul_args act = {.out = args->linear.out,
                                         .gate_up = wide,
                                         .activation = args->gate.activation,
                                         .limit = args->gate.limit,
                                         .num_tokens = linear.num_tokens,
                                         .size = (int32_t)size,
                                         .dtype = linear.dtype};
    const struct activate_args activate = {.out = args->linear.out,
                                           .x = wide,
                                           .activation = args->gate.activation,
                                           .num_tokens = linear.num_tokens,
                                           .size = (int32_t)size,
                                           .dtype = linear.dtype};
    if (args->gate.kind == GATE_NONE)
        b->activate(b, &activate);
    else
        b->act_and_mul(b, &act);
    free(x);
    free(wide);
    return true;
}

/* The first `size` elements of each row, in rows of `row` elements. */
static float *copy_rows(const void *data, int64_t stride, int64_t size, int64_t row, int64_t num_tokens)
{
    float *out = allocate(num_tokens * row);
    for (int64_t t = 0; t < num_tokens; t++)
        memcpy(out + t * row, (const float *)data + t * stride, (size_t)size * sizeof *out);
    return out;
}

/* Entries of one state index are a run, which the arguments speak of. */
static void check_runs(const struct attention_args *args)
{
    for (int32_t i = 1; i < args->num_seqs; i++)
        for (int32_t j = 0; j < i; j++) {
            const bool follows = args->seq_lens[i] - args->seq_lens[j] == i - j;
            if (args->state_indices[i] == args->state_indices[j] && (args->max_run_len < 1 + i - j || !follows))
                abort();
        }
}

/* query and key stay as they are: copies are rotated. */
static bool decode_attention(struct backend *b, const struct decode_attention_args *args)
{
    struct rotary_args rotary = args->rotary;
    struct reshape_and_cache_args cache = args->cache;
    struct attention_args attention = args->attention;
    const int64_t n = rotary.num_tokens, k_size = (int64_t)rotary.num_kv_heads * rotary.head_size;
    const int64_t v_size = (int64_t)cache.num_kv_heads * cache.v_head_size, kv_size = k_size + v_size;
    const int64_t q_size = (int64_t)rotary.num_heads * rotary.head_size;
    if (!is_taken(rotary.num_tokens, rotary.dtype, &counted->decode_attention)) return false;
    assert(attention.num_seqs == rotary.num_tokens && attention.max_query_len == 1);
    check_runs(&attention);
    float *q = copy_rows(rotary.query, rotary.query_stride, q_size, q_size, n);
    float *k = copy_rows(rotary.key, rotary.key_stride, k_size, kv_size, n);
    float *v = copy_rows(cache.value, cache.kv_stride, v_size, kv_size, n);
    rotary.query = q, rotary.query_stride = q_size;
    rotary.key = k, rotary.key_stride = kv_size;
    cache.key = k, cache.value = v, cache.kv_stride = kv_size;
    attention.query = q, attention.query_stride = q_size;
    if (rotary.rotary_dim > 0 || rotary.query_norm) b->rotary_embedding(b, &rotary);
    b->reshape_and_cache(b, &cache);
    paged_attention(b, &attention, attention.num_seqs, attention.num_seqs);
    if (args->gate.kind != OUTPUT_GATE_NONE) b->output_gate(b, &args->gate);
    free(q);
    free(k);
    free(v);
    return true;
}

/* Latents and keys stay as they are: copies are normed and rotated. */
static bool latent_inputs(struct backend *b, const struct latent_inputs_args *args)
{
    struct latent_cache_args cache = args->cache;
    if (!is_taken(cache.num_tokens, cache.dtype, &counted->latent_inputs)) return false;
    float *latent = copy_rows(cache.latent, cache.latent_stride, cache.rank, cache.rank, cache.num_tokens);
    float *key = copy_rows(cache.rotated, cache.rotated_stride, cache.rope, cache.rope, cache.num_tokens);
    const struct rms_norm_args norm = {.out = latent,
                                       .x = latent,
                                       .out_stride = cache.rank,
                                       .x_stride = cache.rank,
                                       .norm = args->norm,
                                       .num_tokens = cache.num_tokens,
                                       .size = cache.rank,
                                       .dtype = cache.dtype};
    const struct rms_norm_args norm_q = {.out = args->q,
                                         .x = args->q_in,
                                         .out_stride = args->q_rank,
                                         .x_stride = args->q_stride,
                                         .norm = args->q_norm,
                                         .num_tokens = cache.num_tokens,
                                         .size = args->q_rank,
                                         .dtype = cache.dtype};
    const struct rotary_args rotary = {.query = key,
                                       .key = key,
                                       .query_stride = cache.rope,
                                       .key_stride = cache.rope,
                                       .positions = args->positions,
                                       .cos_sin = args->cos_sin,
                                       .num_tokens = cache.num_tokens,
                                       .num_heads = 1,
                                       .head_size = cache.rope,
                                       .rotary_dim = cache.rope,
                                       .interleaved = args->interleaved,
                                       .dtype = cache.dtype};
    b->rms_norm(b, &norm);
    if (args->q_rank > 0) b->rms_norm(b, &norm_q);
    if (args->cos_sin) b->rotary_embedding(b, &rotary);
    cache.latent = latent, cache.latent_stride = cache.rank;
    cache.rotated = key, cache.rotated_stride = cache.rope;
    b->latent_cache(b, &cache);
    free(latent);
    free(key);
    return true;
}

void fused_backend_wrap(struct backend *b, int32_t max_num_tokens, struct fused_calls *calls)
{
    largest = max_num_tokens;
    counted = calls;
    *calls = (struct fused_calls){0};
    b->norm_linear = norm_linear;
    b->linear_residual = linear_residual;
    b->gate_up = gate_up;
    b->latent_inputs = latent_inputs;
    b->decode_attention = decode_attention;
}
