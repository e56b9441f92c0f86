/* Paged attention against float64, on caches whose unused slots are all NaN: decode (v1 and v2), prefill, chunks and
 * mixed batches, every head size, block size and element type, ALiBi, block-sparse attention, sliding windows, soft
 * caps, sinks, chunks, runs. decode_attention, where a backend has it, against the operations that it replaces. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/operations.h"

#ifdef QUIRE_HAVE_CUDA
#include "kernels/cuda/cuda.h"
#endif

enum { MAX_SEQS = 256, NO_BLOCK = 1 << 30 };

enum route { ROUTE_V1 = 1, ROUTE_V2 = 2, ROUTE_PREFILL = 4, ROUTE_MIXED = 8 };

/* Beside scores of about 1: no sinks, some that weigh as much as a few keys, or some far above and below any score. */
enum sinks { SINKS_NONE, SINKS_EVEN, SINKS_FAR };

struct attention_case {
    int32_t num_seqs;
    int32_t query_lens[MAX_SEQS], seq_lens[MAX_SEQS]; /* decodes first */
    bool follows[MAX_SEQS];                           /* decode i is the next entry of the run of decode i - 1 */
    int32_t max_run_len;                              /* in the arguments */
    int32_t num_heads, num_kv_heads, head_size, block_size;
    int32_t v_head_size; /* 0: head_size */
    enum dtype dtype, cache_dtype;
    struct attention_params params; /* scale may be left 0: 1/sqrt(head_size) */
    float kv_scales[2];             /* of an fp8 cache; 0: 1 */
    bool alibi;
    enum sinks sinks;
    bool poison_before_window; /* tokens before every window or chunk are NaN; for their blocks the table has the null
                                  block, which is NaN too, or numbers of no block */
    double amplitude;          /* of queries and keys; 0: 1 */
    double grain;              /* queries and keys are multiples of it; 0: any number */
    double recent;             /* what the keys of a sequence's last 16 tokens are larger by; 0: 1 */
    int routes;                /* the entries to call; 0: all that apply */
    int32_t max_seq_len;       /* the bound in the arguments, as when a graph is captured; 0: the longest sequence */
};

/* Everything that a case needs, on the host and on the device. */
struct fixture {
    const struct attention_case *c;
    const struct test_backend *tb;
    struct attention_params params;
    int32_t num_tokens, max_query_len, max_seq_len, max_blocks, num_decodes;
    int32_t query_start[MAX_SEQS + 1], state_indices[MAX_SEQS];
    int64_t query_stride, block_stride;
    double *keys[MAX_SEQS], *values[MAX_SEQS]; /* [seq_len, num_kv_heads, head_size or v_size] as real numbers */
    double *expected;                          /* [num_tokens, num_heads, v_size] */
    double *query_host;
    float slopes[128], sinks[128], kv_scales[2];
    struct tensor query, k_cache, v_cache, tables, seq_lens, starts, state_indices_on, alibi, sinks_on, kv_scales_on;
    bool is_copy; /* keys, values, expected and query_host are another fixture's */
};

static int32_t v_size(const struct attention_case *c)
{
    return c->v_head_size > 0 ? c->v_head_size : c->head_size;
}

static int64_t k_index(const struct fixture *f, int64_t block, int64_t head, int64_t offset, int64_t d)
{
    const int64_t x = 16 / dtype_size(f->c->cache_dtype), hs = f->c->head_size, bs = f->c->block_size;
    return block * f->block_stride + ((head * (hs / x) + d / x) * bs + offset) * x + d % x;
}

static int64_t v_index(const struct fixture *f, int64_t block, int64_t head, int64_t offset, int64_t d)
{
    return block * f->block_stride + (head * v_size(f->c) + d) * f->c->block_size + offset;
}

/* Stores a number in the cache and returns the number that a reader gets back. */
static double put(struct tensor *cache, int64_t index, double value, float scale)
{
    tensor_set(cache, index, value / (double)scale);
    return tensor_get(cache, index) * (double)scale;
}

/* The first and the last entry of the run of entry i: i of any other sequence. */
static int32_t run_first(const struct attention_case *c, int32_t i)
{
    while (c->follows[i]) i--;
    return i;
}

static int32_t run_last(const struct attention_case *c, int32_t i)
{
    while (i + 1 < c->num_seqs && c->follows[i + 1]) i++;
    return i;
}

static bool is_hidden(const struct fixture *f, int32_t seq, int32_t token)
{
    const int32_t first = run_first(f->c, seq), first_position = f->c->seq_lens[first] - f->c->query_lens[first];
    const int32_t chunk = f->params.chunk;
    if (chunk > 0) return f->c->poison_before_window && token / chunk < first_position / chunk;
    return f->c->poison_before_window && token <= first_position - f->params.window;
}

/* An element of a query or a key. */
static double draw(const struct attention_case *c, struct random *random)
{
    const double x = (2 * random_uniform(random) - 1) * (c->amplitude > 0 ? c->amplitude : 1);
    return c->grain > 0 ? round(x / c->grain) * c->grain : x;
}

/* Fills the blocks of one sequence; slots that no query may read stay NaN. */
static void fill_sequence(struct fixture *f, int32_t seq, const int32_t *blocks, struct random *random)
{
    const struct attention_case *c = f->c;
    const int64_t heads = c->num_kv_heads, size = c->head_size, v_head = v_size(c), tokens = c->seq_lens[seq];
    f->keys[seq] = calloc((size_t)(tokens * heads * size) + 1, sizeof(double));
    f->values[seq] = calloc((size_t)(tokens * heads * v_head) + 1, sizeof(double));
    for (int32_t t = 0; t < tokens; t++)
        for (int32_t h = 0; h < heads && !is_hidden(f, seq, t); h++) {
            const int64_t block = blocks[t / c->block_size], offset = t % c->block_size;
            const double factor = c->recent > 0 && t >= tokens - 16 ? c->recent : 1;
            for (int32_t d = 0; d < size; d++)
                f->keys[seq][(t * heads + h) * size + d] =
                    put(&f->k_cache, k_index(f, block, h, offset, d), draw(c, random) * factor, f->kv_scales[0]);
            for (int32_t d = 0; d < v_head; d++)
                f->values[seq][(t * heads + h) * v_head + d] = put(&f->v_cache, v_index(f, block, h, offset, d),
                                                                   2 * random_uniform(random) - 0.7, f->kv_scales[1]);
        }
}

static void shuffle(int32_t *numbers, int32_t count, struct random *random)
{
    for (int32_t i = count - 1; i > 0; i--) {
        const int32_t j = (int32_t)random_between(random, 0, i), old = numbers[i];
        numbers[i] = numbers[j];
        numbers[j] = old;
    }
}

/* The blocks that an entry has for itself: the last one of a run has those of the run. */
static int32_t own_blocks(const struct attention_case *c, int32_t i)
{
    return run_last(c, i) == i ? (c->seq_lens[i] + c->block_size - 1) / c->block_size : 0;
}

/* The entries of a run have the tokens of the last one. */
static void share_runs(struct fixture *f)
{
    for (int32_t i = 0; i < f->c->num_seqs; i++) {
        const int32_t last = run_last(f->c, i);
        f->state_indices[i] = f->state_indices[last];
        f->keys[i] = f->keys[last], f->values[i] = f->values[last];
    }
}

/* Blocks are assigned in random order, and so are state indices. No sequence has block 0, which is all NaN; so is what
 * lies between blocks, if anything does. */
static void make_cache(struct fixture *f, struct random *random)
{
    const struct attention_case *c = f->c;
    int32_t num_blocks = 1, next = 0;
    for (int32_t i = 0; i < c->num_seqs; i++) num_blocks += own_blocks(c, i);
    int32_t *order = malloc(sizeof *order * (size_t)num_blocks);
    for (int32_t i = 0; i < num_blocks - 1; i++) order[i] = i + 1;
    shuffle(order, num_blocks - 1, random);
    for (int32_t i = 0; i < c->num_seqs; i++) f->state_indices[i] = i;
    shuffle(f->state_indices, c->num_seqs, random);
    const int32_t largest = v_size(c) > c->head_size ? v_size(c) : c->head_size;
    f->block_stride = (int64_t)c->num_kv_heads * largest * c->block_size;
    if (random_between(random, 0, 1)) f->block_stride += 64 * random_between(random, 1, 5);
    const int64_t elements = num_blocks * f->block_stride;
    f->k_cache = tensor_poison(f->tb->b, c->cache_dtype, elements);
    f->v_cache = tensor_poison(f->tb->b, c->cache_dtype, elements);
    int32_t *tables = calloc((size_t)c->num_seqs * (size_t)f->max_blocks, sizeof *tables);
    for (int32_t i = 0; i < c->num_seqs; i++) {
        const int32_t used = own_blocks(c, i);
        if (run_last(c, i) != i) continue;
        int32_t *row = tables + (int64_t)f->state_indices[i] * f->max_blocks;
        memcpy(row, order + next, sizeof *order * (size_t)used);
        fill_sequence(f, i, order + next, random);
        for (int32_t b = 0; b < used; b++)
            if (is_hidden(f, i, (b + 1) * c->block_size - 1)) row[b] = b % 2 ? 0 : NO_BLOCK;
        next += used;
    }
    share_runs(f);
    tensor_upload(&f->k_cache), tensor_upload(&f->v_cache);
    f->tables = tensor_bytes(f->tb->b, tables, (int64_t)sizeof *tables * c->num_seqs * f->max_blocks);
    free(tables), free(order);
}

static void make_lengths(struct fixture *f)
{
    const struct attention_case *c = f->c;
    for (int32_t i = 0; i < c->num_seqs; i++) {
        f->query_start[i + 1] = f->query_start[i] + c->query_lens[i];
        if (c->query_lens[i] > f->max_query_len) f->max_query_len = c->query_lens[i];
        if (c->seq_lens[i] > f->max_seq_len) f->max_seq_len = c->seq_lens[i];
        if (c->query_lens[i] == 1 && f->num_decodes == i) f->num_decodes++;
    }
    f->num_tokens = f->query_start[c->num_seqs];
    f->max_blocks = (f->max_seq_len + c->block_size - 1) / c->block_size + 1;
}

/* Queries are parts of a fused QKV: the stride is larger than num_heads * head_size, and the rest is NaN. */
static void make_query(struct fixture *f, struct random *random)
{
    const struct attention_case *c = f->c;
    f->query_stride = (c->num_heads + 2 * c->num_kv_heads) * (int64_t)c->head_size;
    f->query = tensor_poison(f->tb->b, c->dtype, f->num_tokens * f->query_stride);
    for (int64_t t = 0; t < f->num_tokens; t++)
        for (int64_t i = 0; i < (int64_t)c->num_heads * c->head_size; i++)
            tensor_set(&f->query, t * f->query_stride + i, draw(c, random));
    tensor_upload(&f->query);
    f->query_host = tensor_doubles(&f->query);
}

/* Head index % num_heads of token index / num_heads. */
static void attend_head(void *fixture, int64_t index, int thread)
{
    (void)thread;
    const struct fixture *f = fixture;
    const struct attention_case *c = f->c;
    const int64_t token = index / c->num_heads;
    const int32_t h = (int32_t)(index % c->num_heads), kv_head = h / (c->num_heads / c->num_kv_heads);
    int32_t i = 0;
    while (token >= f->query_start[i + 1]) i++;
    const double sink = (double)f->sinks[h];
    const struct reference_query q = {.query = f->query_host + token * f->query_stride + h * c->head_size,
                                      .keys = f->keys[i] + kv_head * c->head_size,
                                      .values = f->values[i] + kv_head * v_size(c),
                                      .stride = (int64_t)c->num_kv_heads * c->head_size,
                                      .v_stride = (int64_t)c->num_kv_heads * v_size(c),
                                      .position = c->seq_lens[i] - f->query_start[i + 1] + (int32_t)token,
                                      .head = h,
                                      .kv_head = kv_head,
                                      .head_size = c->head_size,
                                      .v_head_size = v_size(c),
                                      .params = &f->params,
                                      .alibi_slope = c->alibi ? (double)f->slopes[h] : 0,
                                      .sink = c->sinks ? &sink : NULL};
    reference_attention(f->expected + index * v_size(c), &q);
}

static void make_expected(struct fixture *f)
{
    const struct attention_case *c = f->c;
    f->expected = malloc(sizeof(double) * (size_t)f->num_tokens * (size_t)c->num_heads * (size_t)v_size(c));
    reference_for((int64_t)f->num_tokens * c->num_heads, attend_head, f);
}

static void fixture_make(struct fixture *f, const struct attention_case *c, const struct test_backend *tb,
                         struct random *random)
{
    memset(f, 0, sizeof *f);
    f->c = c;
    f->tb = tb;
    f->params = c->params;
    if (f->params.scale == 0) f->params.scale = 1 / sqrtf((float)c->head_size);
    for (int i = 0; i < 2; i++) f->kv_scales[i] = c->kv_scales[i] > 0 ? c->kv_scales[i] : 1;
    f->kv_scales_on = tensor_bytes(tb->b, f->kv_scales, sizeof f->kv_scales);
    if (dtype_size(c->cache_dtype) == 1) f->params.kv_scales = f->kv_scales_on.data;
    make_lengths(f);
    for (int h = 0; h < c->num_heads; h++) f->slopes[h] = powf(2, -8.0f * (float)(h + 1) / (float)c->num_heads);
    f->alibi = tensor_bytes(tb->b, f->slopes, (int64_t)sizeof *f->slopes * c->num_heads);
    if (c->alibi) f->params.alibi_slopes = f->alibi.data;
    for (int h = 0; h < c->num_heads; h++)
        f->sinks[h] = c->sinks == SINKS_FAR ? (h % 2 ? -200 : 200) : (float)random_uniform(random) * 6 - 1;
    f->sinks_on = tensor_bytes(tb->b, f->sinks, (int64_t)sizeof *f->sinks * c->num_heads);
    if (c->sinks) f->params.sinks = f->sinks_on.data;
    make_cache(f, random);
    make_query(f, random);
    make_expected(f);
    f->seq_lens = tensor_bytes(tb->b, c->seq_lens, (int64_t)sizeof(int32_t) * c->num_seqs);
    f->starts = tensor_bytes(tb->b, f->query_start, (int64_t)sizeof(int32_t) * (c->num_seqs + 1));
    f->state_indices_on = tensor_bytes(tb->b, f->state_indices, (int64_t)sizeof(int32_t) * c->num_seqs);
}

static struct tensor copy_of(const struct tensor *t, struct backend *b)
{
    struct tensor copy = tensor_bytes(b, t->host, t->bytes);
    copy.dtype = t->dtype;
    copy.count = t->count;
    return copy;
}

/* Copies the numbers to another backend, which must give the same answers: these are computed once, because that takes
 * most of the time. `from` must outlive the copy. */
static void fixture_copy(struct fixture *f, const struct fixture *from, const struct test_backend *tb)
{
    *f = *from;
    f->tb = tb;
    f->is_copy = true;
    struct tensor *const tensors[] = {&f->query,  &f->k_cache,          &f->v_cache, &f->tables,   &f->seq_lens,
                                      &f->starts, &f->state_indices_on, &f->alibi,   &f->sinks_on, &f->kv_scales_on};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) *tensors[i] = copy_of(tensors[i], tb->b);
    if (f->params.alibi_slopes) f->params.alibi_slopes = f->alibi.data;
    if (f->params.sinks) f->params.sinks = f->sinks_on.data;
    if (f->params.kv_scales) f->params.kv_scales = f->kv_scales_on.data;
}

static void fixture_free(struct fixture *f)
{
    for (int32_t i = 0; i < f->c->num_seqs && !f->is_copy; i++)
        if (run_last(f->c, i) == i) free(f->keys[i]), free(f->values[i]);
    if (!f->is_copy) free(f->expected), free(f->query_host);
    tensor_free(&f->query), tensor_free(&f->k_cache), tensor_free(&f->v_cache), tensor_free(&f->tables);
    tensor_free(&f->seq_lens), tensor_free(&f->starts), tensor_free(&f->state_indices_on), tensor_free(&f->alibi);
    tensor_free(&f->sinks_on), tensor_free(&f->kv_scales_on);
}

static struct attention_args arguments(const struct fixture *f, void *out)
{
    const struct attention_case *c = f->c;
    return (struct attention_args){.out = out,
                                   .query = f->query.data,
                                   .query_stride = f->query_stride,
                                   .k_cache = f->k_cache.data,
                                   .v_cache = f->v_cache.data,
                                   .block_tables = f->tables.data,
                                   .block_table_stride = f->max_blocks,
                                   .seq_lens = f->seq_lens.data,
                                   .query_start = f->starts.data,
                                   .state_indices = f->state_indices_on.data,
                                   .num_seqs = c->num_seqs,
                                   .num_heads = c->num_heads,
                                   .num_kv_heads = c->num_kv_heads,
                                   .head_size = c->head_size,
                                   .v_head_size = v_size(c),
                                   .block_size = c->block_size,
                                   .block_stride = f->block_stride,
                                   .max_query_len = f->max_query_len,
                                   .max_seq_len = c->max_seq_len > 0 ? c->max_seq_len : f->max_seq_len,
                                   .max_run_len = c->max_run_len,
                                   .dtype = c->dtype,
                                   .cache_dtype = c->cache_dtype,
                                   .params = &f->params};
}

static void call_route(const struct fixture *f, enum route route, const struct attention_args *args)
{
    struct backend *b = f->tb->b;
    if (route == ROUTE_V1) b->paged_attention_v1(b, args);
    if (route == ROUTE_V2) b->paged_attention_v2(b, args);
    if (route == ROUTE_PREFILL) b->paged_attention_prefill(b, args);
    if (route == ROUTE_MIXED) paged_attention(b, args, f->num_decodes, f->c->num_seqs);
}

static void run_route(struct fixture *f, enum route route, const char *name)
{
    struct backend *b = f->tb->b;
    char what[256];
    const struct attention_case *c = f->c;
    const int64_t count = (int64_t)f->num_tokens * c->num_heads * v_size(c);
    struct tensor out = tensor_poison(b, c->dtype, count);
    const struct attention_args args = arguments(f, out.data);
    call_route(f, route, &args);
    tensor_download(&out);
    snprintf(what, sizeof what,
             "attention %s: %d seqs, runs of %d, up to %d of %d tokens, heads %d/%d of %d and %d, blocks of %d, %s, %s",
             name, c->num_seqs, c->max_run_len, f->max_query_len, f->max_seq_len, c->num_heads, c->num_kv_heads,
             c->head_size, v_size(c), c->block_size, dtype_name(c->dtype), dtype_name(c->cache_dtype));
    check_close(f->tb, what, &out, f->expected, count, c->dtype);
    tensor_free(&out);
}

static void workspace_for(struct test_backend *tb, const struct fixture *f)
{
    const struct attention_case *c = f->c;
    const struct workspace_query query = {.max_num_tokens = f->num_tokens,
                                          .max_num_seqs = c->num_seqs,
                                          .max_model_len = c->max_seq_len > 0 ? c->max_seq_len : f->max_seq_len,
                                          .num_heads = c->num_heads,
                                          .head_size = v_size(c) > c->head_size ? v_size(c) : c->head_size,
                                          .block_size = c->block_size,
                                          .max_in_features = 64,
                                          .vocab_size = 64};
    use_workspace(tb, &query);
}

/* ---- decode_attention ---- */

/* Ways to prepare query and key; a model has one of them in each layer. */
struct preparation {
    bool normed, float_gains; /* gains in float32, or else in the case's type */
    bool partly, interleaved, not_rotated;
    enum output_gate gate;
    bool head_gates; /* a gate for each head, not for each element */
};
static const struct preparation preparations[] = {
    {0},
    {.normed = true},
    {.normed = true, .float_gains = true, .not_rotated = true},
    {.partly = true},
    {.interleaved = true},
    {.partly = true, .interleaved = true},
    {.normed = true, .float_gains = true, .partly = true},
    {.normed = true, .interleaved = true},
    {.normed = true, .gate = OUTPUT_GATE_SIGMOID},
    {.gate = OUTPUT_GATE_SOFTPLUS, .head_gates = true},
};
enum { NUM_PREPARATIONS = sizeof preparations / sizeof *preparations };

/* What the three operations need beside a case's fixture. */
struct fused {
    struct tensor rows, k_cache, v_cache; /* query, key and value of each token side by side; copies of the caches */
    struct tensor positions, slots, cos_sin, query_gain, key_gain, gates, out;
    struct norm_params query_norm, key_norm;
    struct rotary_args rotary;
    struct reshape_and_cache_args cache;
    struct attention_args attention;
    struct output_gate_args gate;
};

/* The position and the slot of each token. */
static void make_places(const struct fixture *f, struct fused *u)
{
    const struct attention_case *c = f->c;
    const int32_t *tables = (const int32_t *)f->tables.host;
    int32_t positions[MAX_SEQS];
    int64_t slots[MAX_SEQS];
    for (int32_t t = 0; t < f->num_tokens; t++) {
        const int32_t position = c->seq_lens[t] - 1;
        const int64_t block = tables[f->state_indices[t] * f->max_blocks + position / c->block_size];
        positions[t] = position;
        slots[t] = block * c->block_size + position % c->block_size;
    }
    u->positions = tensor_bytes(f->tb->b, positions, (int64_t)sizeof *positions * f->num_tokens);
    u->slots = tensor_bytes(f->tb->b, slots, (int64_t)sizeof *slots * f->num_tokens);
}

/* The arguments of the three operations on the tensors of u. */
static void make_arguments(const struct fixture *f, struct fused *u)
{
    const struct attention_case *c = f->c;
    const int64_t q_size = (int64_t)c->num_heads * c->head_size, kv_size = (int64_t)c->num_kv_heads * c->head_size;
    uint8_t *key = (uint8_t *)u->rows.data + q_size * dtype_size(c->dtype);
    u->rotary = (struct rotary_args){.query = u->rows.data,
                                     .key = key,
                                     .query_stride = f->query_stride,
                                     .key_stride = f->query_stride,
                                     .positions = u->positions.data,
                                     .cos_sin = u->cos_sin.data,
                                     .num_tokens = f->num_tokens,
                                     .num_heads = c->num_heads,
                                     .num_kv_heads = c->num_kv_heads,
                                     .head_size = c->head_size,
                                     .rotary_dim = c->head_size,
                                     .dtype = c->dtype};
    u->cache = (struct reshape_and_cache_args){.key = key,
                                               .value = key + kv_size * dtype_size(c->dtype),
                                               .kv_stride = f->query_stride,
                                               .k_cache = u->k_cache.data,
                                               .v_cache = u->v_cache.data,
                                               .slot_mapping = u->slots.data,
                                               .num_tokens = f->num_tokens,
                                               .num_kv_heads = c->num_kv_heads,
                                               .head_size = c->head_size,
                                               .v_head_size = v_size(c),
                                               .block_size = c->block_size,
                                               .block_stride = f->block_stride,
                                               .dtype = c->dtype,
                                               .cache_dtype = c->cache_dtype,
                                               .kv_scales = (float *)f->params.kv_scales};
    u->attention = arguments(f, u->out.data);
    u->attention.query = u->rows.data;
    u->attention.k_cache = u->k_cache.data;
    u->attention.v_cache = u->v_cache.data;
}

/* gain_dtype: of both norms. */
static void fused_make(struct fused *u, const struct fixture *f, enum dtype gain_dtype, struct random *random)
{
    const struct attention_case *c = f->c;
    struct backend *b = f->tb->b;
    *u = (struct fused){.k_cache = copy_of(&f->k_cache, b), .v_cache = copy_of(&f->v_cache, b)};
    u->rows = tensor_random(b, c->dtype, f->num_tokens * f->query_stride, 1, random);
    u->cos_sin = tensor_random(b, DTYPE_FLOAT32, (int64_t)f->max_seq_len * c->head_size, 1, random);
    u->query_gain = tensor_random(b, gain_dtype, c->head_size, 2, random);
    u->key_gain = tensor_random(b, gain_dtype, c->head_size, 2, random);
    u->gates = tensor_random(b, c->dtype, (int64_t)f->num_tokens * c->num_heads * v_size(c), 3, random);
    u->query_norm = norm_of(&u->query_gain);
    u->key_norm = norm_of(&u->key_gain);
    u->out = tensor_poison(b, c->dtype, (int64_t)f->num_tokens * c->num_heads * v_size(c));
    make_places(f, u);
    make_arguments(f, u);
}

static void prepare(struct fused *u, const struct preparation *p)
{
    const int32_t heads = u->attention.num_heads, size = heads * u->attention.v_head_size;
    u->gate = (struct output_gate_args){.x = u->out.data,
                                        .gate = u->gates.data,
                                        .gate_stride = size,
                                        .num_tokens = u->rotary.num_tokens,
                                        .size = size,
                                        .gate_size = p->head_gates ? heads : size,
                                        .kind = p->gate,
                                        .dtype = u->attention.dtype};
    if (p->not_rotated) u->rotary.rotary_dim = 0;
    if (p->partly) u->rotary.rotary_dim = u->rotary.head_size * 3 / 4 / 8 * 8;
    u->rotary.interleaved = p->interleaved;
    if (!p->normed) return;
    u->rotary.query_norm = &u->query_norm;
    u->rotary.key_norm = &u->key_norm;
}

static void fused_free(struct fused *u)
{
    tensor_free(&u->rows), tensor_free(&u->k_cache), tensor_free(&u->v_cache), tensor_free(&u->positions);
    tensor_free(&u->slots), tensor_free(&u->cos_sin), tensor_free(&u->out);
    tensor_free(&u->query_gain), tensor_free(&u->key_gain), tensor_free(&u->gates);
}

/* Sets the newest token's slot in the caches to NaN, by storing the NaN that stands behind the fixture's queries. */
static void forget_newest(const struct fixture *f, struct fused *u)
{
    struct reshape_and_cache_args args = u->cache;
    args.key = args.value =
        (uint8_t *)f->query.data + (int64_t)f->c->num_heads * f->c->head_size * dtype_size(f->c->dtype);
    f->tb->b->reshape_and_cache(f->tb->b, &args);
    tensor_download(&u->k_cache), tensor_download(&u->v_cache);
}

static bool call_fused(const struct fixture *f, struct fused *u)
{
    struct backend *b = f->tb->b;
    const struct decode_attention_args args = {u->rotary, u->cache, u->attention, u->gate};
    const bool taken = b->decode_attention(b, &args);
    tensor_download(&u->out);
    return taken;
}

static void assert_same(const struct tensor *a, const struct tensor *b)
{
    assert_memory_equal(a->host, b->host, (size_t)a->bytes);
}

/* Whether the backend has a kernel for it. */
static bool is_for_fused(const struct attention_case *c)
{
    const bool fp8 = dtype_size(c->cache_dtype) == 1 && c->block_size >= 16 && c->head_size % 16 == 0;
    return c->dtype != DTYPE_FLOAT32 && (c->cache_dtype == c->dtype || fp8) && c->params.sparse_vertical_stride <= 1 &&
           v_size(c) == c->head_size;
}

/* Gives both the same inputs: copies what is random from one to the other. */
static void copy_inputs(struct fused *to, const struct fused *from)
{
    struct tensor *const tos[] = {&to->rows, &to->cos_sin, &to->query_gain, &to->key_gain, &to->gates};
    const struct tensor *const froms[] = {&from->rows, &from->cos_sin, &from->query_gain, &from->key_gain,
                                          &from->gates};
    for (int i = 0; i < 5; i++) {
        memcpy(tos[i]->host, froms[i]->host, (size_t)froms[i]->bytes);
        tensor_upload(tos[i]);
    }
}

/* The first call, which has no slots to store K and V in, leaves the caches alone; if it refuses, it writes nothing. */
static bool call_without_slots(struct fixture *f, struct fused *fused, const struct fused *plain)
{
    struct tensor nowhere = tensor_poison(f->tb->b, DTYPE_FLOAT32, 2 * (int64_t)MAX_SEQS); /* int64 -1 */
    fused->cache.slot_mapping = nowhere.data;
    const bool taken = call_fused(f, fused);
    fused->cache.slot_mapping = fused->slots.data;
    assert_int_equal(taken, is_for_fused(f->c));
    tensor_download(&fused->k_cache), tensor_download(&fused->v_cache), tensor_download(&fused->rows);
    assert_same(&fused->k_cache, &plain->k_cache), assert_same(&fused->v_cache, &plain->v_cache);
    assert_same(&fused->rows, &plain->rows);
    tensor_free(&nowhere);
    return taken;
}

/* decode_attention against the operations that it replaces, which store K and V of a whole run first. */
static void check_fused(struct fixture *f, const struct preparation *preparation, struct random *random)
{
    struct backend *b = f->tb->b;
    const struct attention_case *c = f->c;
    const enum dtype gain_dtype = preparation->float_gains ? DTYPE_FLOAT32 : c->dtype;
    struct fused plain, fused;
    fused_make(&plain, f, gain_dtype, random), fused_make(&fused, f, gain_dtype, random);
    copy_inputs(&plain, &fused);
    prepare(&plain, preparation), prepare(&fused, preparation);
    forget_newest(f, &plain), forget_newest(f, &fused);
    if (call_without_slots(f, &fused, &plain)) {
        b->rotary_embedding(b, &plain.rotary);
        b->reshape_and_cache(b, &plain.cache);
        paged_attention(b, &plain.attention, c->num_seqs, c->num_seqs);
        if (preparation->gate) b->output_gate(b, &plain.gate);
        tensor_download(&plain.out), tensor_download(&plain.k_cache), tensor_download(&plain.v_cache);
        double *expected = tensor_doubles(&plain.out);
        check_close(f->tb, "decode_attention, nothing stored", &fused.out, expected, fused.out.count, c->dtype);
        call_fused(f, &fused);
        check_close(f->tb, "decode_attention", &fused.out, expected, fused.out.count, c->dtype);
        if (c->max_run_len > 1) check_within(f->tb, "runs", &fused.out, expected, fused.out.count, 1e-3);
        tensor_download(&fused.k_cache), tensor_download(&fused.v_cache);
        assert_same(&fused.k_cache, &plain.k_cache), assert_same(&fused.v_cache, &plain.v_cache);
        free(expected);
    }
    fused_free(&plain), fused_free(&fused);
}

/* Prefill with the kernels for GPUs without wgmma, and with less shared memory. */
static void run_prefill_of_other_gpus(struct fixture *f)
{
#ifdef QUIRE_HAVE_CUDA
    struct backend *b = f->tb->b;
    if (!b->discrete) return;
    backend_cuda_choose_as(b, 80);
    run_route(f, ROUTE_PREFILL, "prefill as on 8.0");
    backend_cuda_choose_as(b, 89);
    run_route(f, ROUTE_PREFILL, "prefill as on 8.9");
    backend_cuda_choose_as(b, 0);
#else
    (void)f;
#endif
}

/* Checks every operation that takes the case. With one query token a sequence these are v1, v2 and prefill, which must
 * give the same numbers. */
static void check_fixture(struct kernel_test *test, struct test_backend *tb, struct fixture *f)
{
    const struct attention_case *c = f->c;
    workspace_for(tb, f);
    int routes = f->num_decodes == c->num_seqs ? ROUTE_V1 | ROUTE_V2 | ROUTE_PREFILL : ROUTE_PREFILL | ROUTE_MIXED;
    if (c->routes) routes &= c->routes;
    if (routes & ROUTE_V1) run_route(f, ROUTE_V1, "v1");
    if (routes & ROUTE_V2) run_route(f, ROUTE_V2, "v2");
    if (routes & ROUTE_PREFILL) {
        run_route(f, ROUTE_PREFILL, "prefill");
        run_prefill_of_other_gpus(f);
    }
    if (routes & ROUTE_MIXED) run_route(f, ROUTE_MIXED, "mixed");
    for (int p = 0; p < NUM_PREPARATIONS && f->num_decodes == c->num_seqs; p++)
        if (tb->b->decode_attention) check_fused(f, &preparations[p], &test->random);
    check_workspace(tb);
}

/* Runs a case on every backend. */
static void check_case(struct kernel_test *test, const struct attention_case *c)
{
    struct fixture first, f;
    bool takes[MAX_TEST_BACKENDS], any = false;
    for (int i = 0; i < test->num_backends; i++) takes[i] = kernel_test_takes(&test->backends[i]), any |= takes[i];
    if (!any) return;
    fixture_make(&first, c, &test->backends[0], &test->random);
    if (takes[0]) check_fixture(test, &test->backends[0], &first);
    for (int i = 1; i < test->num_backends; i++) {
        if (!takes[i]) continue;
        fixture_copy(&f, &first, &test->backends[i]);
        check_fixture(test, &test->backends[i], &f);
        fixture_free(&f);
    }
    fixture_free(&first);
}

/* Decodes with these context lengths. */
static struct attention_case decode_case(const int32_t *lengths, int32_t count, int32_t heads, int32_t kv_heads,
                                         int32_t head_size, int32_t block_size)
{
    struct attention_case c = {.num_seqs = count,
                               .num_heads = heads,
                               .num_kv_heads = kv_heads,
                               .head_size = head_size,
                               .block_size = block_size};
    for (int32_t i = 0; i < count; i++) {
        c.query_lens[i] = 1;
        c.seq_lens[i] = lengths[i];
    }
    return c;
}

/* Runs of these numbers of entries, the last of which have these context lengths. */
static struct attention_case run_case(const int32_t *runs, const int32_t *lengths, int32_t count, int32_t heads,
                                      int32_t kv_heads, int32_t head_size, int32_t block_size)
{
    struct attention_case c = {.num_heads = heads,
                               .num_kv_heads = kv_heads,
                               .head_size = head_size,
                               .block_size = block_size,
                               .max_run_len = 1 + MAX_DRAFTS};
    for (int32_t i = 0; i < count; i++)
        for (int32_t k = 0; k < runs[i]; k++, c.num_seqs++) {
            c.query_lens[c.num_seqs] = 1;
            c.seq_lens[c.num_seqs] = lengths[i] - runs[i] + 1 + k;
            c.follows[c.num_seqs] = k > 0;
        }
    return c;
}

static const int32_t block_sizes[] = {8, 16, 32, 64, 128};

static void decodes_at_every_edge(void **state)
{
    for (int b = 0; b < 5; b++) {
        const int32_t bs = block_sizes[b];
        const int32_t lengths[] = {1,   2,   bs - 1, bs,  bs + 1, 2 * bs - 1, 2 * bs, 127,
                                   128, 129, 255,    257, 511,    512,        513};
        const struct attention_case c = decode_case(lengths, 15, 2, 1, 64, bs);
        check_case(*state, &c);
    }
}

static void decodes_long_contexts(void **state)
{
    const int32_t lengths[] = {1023, 1024, 1025, 3000, 1};
    const struct attention_case c = decode_case(lengths, 5, 4, 2, 64, 16);
    const struct attention_case alone = decode_case((const int32_t[]){9001}, 1, 2, 1, 64, 32);
    struct attention_case longest = decode_case((const int32_t[]){20000, 3}, 2, 3, 1, 64, 16);
    longest.dtype = longest.cache_dtype = DTYPE_BFLOAT16;
    check_case(*state, &c);
    check_case(*state, &alone);
    check_case(*state, &longest);
}

/* Every head size and block size: two decodes, then two chunks. Types take turns. */
static void every_head_size(void **state)
{
    static const int32_t sizes[] = {64, 80, 96, 112, 120, 128, 192, 256};
    for (int i = 0; i < 8; i++)
        for (int b = 0; b < 5; b++) {
            const int32_t lengths[] = {37, 260};
            struct attention_case c = decode_case(lengths, 2, 2, 1, sizes[i], block_sizes[b]);
            check_case(*state, &c);
            c.dtype = c.cache_dtype = (i + b) % 2 ? DTYPE_FLOAT16 : DTYPE_BFLOAT16;
            check_case(*state, &c);
            c.query_lens[0] = 30;
            c.query_lens[1] = 70;
            check_case(*state, &c);
            if (sizes[i] % 16 != 0) continue;
            c.cache_dtype = (i + b) % 3 ? DTYPE_FP8_E4M3 : DTYPE_FP8_E5M2;
            c.query_lens[1] = 1;
            check_case(*state, &c);
        }
}

/* Heads of K and V of different sizes, the larger on either side: decodes short and long, chunks, prefills. */
static void heads_of_two_sizes(void **state)
{
    static const int32_t sizes[][2] = {{192, 128}, {128, 192}, {64, 112}, {80, 64}, {256, 96}, {48, 16}};
    for (int i = 0; i < 24; i++) {
        const int32_t lengths[] = {37, 1, 260, 700};
        struct attention_case c = decode_case(lengths, 4, 6, 2, sizes[i % 6][0], block_sizes[i % 5]);
        c.v_head_size = sizes[i % 6][1];
        if (i / 6 != 0) c.dtype = c.cache_dtype = i % 2 ? DTYPE_FLOAT16 : DTYPE_BFLOAT16;
        if (i / 6 == 3) c.cache_dtype = DTYPE_FP8_E4M3, c.kv_scales[0] = 0.37f, c.kv_scales[1] = 0.02f;
        c.sinks = i % 4 ? SINKS_EVEN : SINKS_NONE;
        c.params.window = i % 3 == 0 ? 30 : 0;
        c.poison_before_window = c.params.window > 0;
        check_case(*state, &c);
        c.query_lens[2] = 90, c.query_lens[3] = 210;
        check_case(*state, &c);
    }
}

static void decodes_every_type(void **state)
{
    static const enum dtype types[] = {DTYPE_FLOAT32, DTYPE_FLOAT16, DTYPE_BFLOAT16};
    static const enum dtype caches[] = {DTYPE_FLOAT32, DTYPE_FLOAT16, DTYPE_BFLOAT16, DTYPE_FP8_E4M3, DTYPE_FP8_E5M2};
    for (int t = 0; t < 3; t++)
        for (int k = 0; k < 5; k++) {
            const int32_t lengths[] = {1, 40, 530};
            struct attention_case c = decode_case(lengths, 3, 4, 2, t == 0 ? 64 : 128, k % 2 ? 16 : 8);
            c.dtype = types[t];
            c.cache_dtype = caches[k];
            if (dtype_size(c.cache_dtype) == 1) c.kv_scales[0] = 0.37f, c.kv_scales[1] = 0.02f;
            check_case(*state, &c);
        }
}

static void decodes_every_head_ratio(void **state)
{
    static const int32_t heads[][2] = {{1, 1}, {3, 3}, {6, 2}, {7, 1}, {16, 2}, {71, 1}, {5, 5}};
    for (int i = 0; i < 7; i++) {
        const int32_t lengths[] = {100, 17};
        struct attention_case c = decode_case(lengths, 2, heads[i][0], heads[i][1], 64, 16);
        check_case(*state, &c);
        c.dtype = c.cache_dtype = DTYPE_BFLOAT16;
        check_case(*state, &c);
        c.query_lens[0] = 30;
        check_case(*state, &c);
    }
}

static void decodes_many_sequences(void **state)
{
    struct kernel_test *test = *state;
    int32_t lengths[MAX_SEQS];
    for (int i = 0; i < MAX_SEQS; i++) lengths[i] = (int32_t)random_between(&test->random, 1, 600);
    const struct attention_case c = decode_case(lengths, 40, 2, 2, 64, 16);
    check_case(test, &c);
    for (int w = 0; w < 2; w++) {
        struct attention_case wide =
            w ? decode_case(lengths, 40, 18, 9, 64, 16) : decode_case(lengths, MAX_SEQS, 4, 2, 64, 16);
        wide.dtype = wide.cache_dtype = w ? DTYPE_FLOAT16 : DTYPE_BFLOAT16;
        wide.params.window = w ? 100 : 0;
        wide.max_seq_len = 1 << 17;
        check_case(test, &wide);
    }
}

/* The padding of a captured graph: a sequence of no tokens gives 0; a sequence without a query, on a backend with
 * graphs, is left alone. */
static void padding_rows(void **state)
{
    struct kernel_test *test = *state;
    static const enum dtype types[] = {DTYPE_FLOAT32, DTYPE_BFLOAT16};
    for (int i = 0; i < test->num_backends; i++)
        for (int t = 0; t < 2; t++) {
            struct attention_case c = decode_case((const int32_t[]){0, 90, 0, 7, 0, 0}, 6, 4, 2, 64, 16);
            struct fixture f;
            c.dtype = c.cache_dtype = types[t];
            c.max_seq_len = 1 << 17;
            c.query_lens[4] = c.query_lens[5] = 0;
            if (!test->backends[i].b->capture_begin) c.num_seqs = 4;
            fixture_make(&f, &c, &test->backends[i], &test->random);
            workspace_for(&test->backends[i], &f);
            run_route(&f, ROUTE_V1, "v1");
            run_route(&f, ROUTE_V2, "v2");
            run_route(&f, ROUTE_V2, "v2 again");
            run_route(&f, ROUTE_PREFILL, "prefill");
            run_prefill_of_other_gpus(&f);
            fixture_free(&f);
        }
    struct attention_case c = decode_case((const int32_t[]){90, 7, 700, 0, 0}, 5, 4, 2, 64, 16);
    c.dtype = c.cache_dtype = DTYPE_BFLOAT16;
    c.max_seq_len = 1 << 17;
    c.query_lens[3] = c.query_lens[4] = 0;
    for (int i = 0; i < test->num_backends; i++) {
        struct fixture f;
        if (!test->backends[i].b->decode_attention) continue;
        fixture_make(&f, &c, &test->backends[i], &test->random);
        workspace_for(&test->backends[i], &f);
        for (int p = 0; p < NUM_PREPARATIONS; p++) check_fused(&f, &preparations[p], &test->random);
        fixture_free(&f);
    }
}

static const enum dtype float_types[] = {DTYPE_BFLOAT16, DTYPE_FLOAT32, DTYPE_FLOAT16};

/* Every length of a run, from the first token of a sequence on, across blocks and chunks of kernels, beside decodes,
 * and in contexts that are cut into parts; every number of heads that a KV head may have beside others, and every type.
 */
static void runs_of_every_length(void **state)
{
    static const int32_t heads[][2] = {{1, 1}, {8, 4}, {3, 1},  {8, 2},  {5, 1},  {6, 1},
                                       {7, 1}, {8, 1}, {18, 2}, {16, 1}, {17, 1}, {2, 2}};
    static const int32_t head_sizes[] = {64, 128, 80, 256};
    const int32_t runs[] = {2, 8, 1, 3, 4, 1, 5, 6, 7, 8}, lengths[] = {2, 8, 1, 17, 34, 300, 130, 66, 1030, 21};
    for (int i = 0; i < 24; i++) {
        struct attention_case c =
            run_case(runs, lengths, 10, heads[i % 12][0], heads[i % 12][1], head_sizes[i % 4], block_sizes[i % 5]);
        c.dtype = c.cache_dtype = float_types[i % 12 / 4 + i / 12 * 2 % 3];
        if (i % 5 == 3) c.cache_dtype = i % 2 ? DTYPE_FP8_E4M3 : DTYPE_FP8_E5M2;
        if (i % 5 == 3) c.kv_scales[0] = 0.37f, c.kv_scales[1] = 0.02f;
        if (i % 4 == 1) c.max_seq_len = 1 << 17;
        check_case(*state, &c);
    }
}

/* One run, and a few of equal length, as long as the bound: clusters, and parts of long contexts. */
static void runs_of_few_sequences(void **state)
{
    static const int32_t long_lengths[] = {3000, 620, 611, 700};
    for (int32_t length = 2; length <= 8; length++)
        for (int32_t count = 1; count <= 4; count += 3) {
            const int32_t runs[] = {length, length, length, length};
            struct attention_case c = run_case(runs, long_lengths, count, 8, 2, length % 2 ? 64 : 128, 16);
            c.max_run_len = length;
            c.dtype = c.cache_dtype = DTYPE_BFLOAT16;
            if (length % 3 == 0) c.cache_dtype = DTYPE_FP8_E4M3;
            c.max_seq_len = count == 1 ? 0 : 1 << 17;
            check_case(*state, &c);
        }
}

/* Many sequences, long and short: calls that might have runs but have none, or short ones. */
static void runs_among_many_decodes(void **state)
{
    struct kernel_test *test = *state;
    for (int i = 0; i < 4; i++) {
        int32_t runs[80], lengths[80];
        for (int k = 0; k < 80; k++) {
            runs[k] = i % 2 && k % 7 == 3 ? 2 : 1;
            lengths[k] = (int32_t)random_between(&test->random, 2, i < 2 ? 600 : 60);
        }
        struct attention_case c = run_case(runs, lengths, 80, 6, 3, 64, 16);
        c.dtype = c.cache_dtype = DTYPE_FLOAT16;
        check_case(test, &c);
    }
}

/* Long contexts, and as many short ones behind them as make a kernel compute long runs together. Scores are small, but
 * those of the newest tokens, so that an entry of a run which sees a token too
 * many or too few is found. decode_attention prepares larger keys for those tokens by itself. */
static struct attention_case long_run_case(const int32_t *runs, const int32_t *lengths, int32_t count,
                                           int32_t num_short, int32_t heads, int32_t kv_heads, int32_t head_size,
                                           int32_t block_size)
{
    struct attention_case c = run_case(runs, lengths, count, heads, kv_heads, head_size, block_size);
    for (int32_t i = 0; i < num_short; i++, c.num_seqs++)
        c.query_lens[c.num_seqs] = 1, c.seq_lens[c.num_seqs] = 1 + i % 5;
    c.amplitude = 0.25;
    c.recent = 16;
    c.params.scale = 16 / sqrtf((float)head_size);
    return c;
}

/* The borders that long runs are tested at are those of a GPU's kernels. A CPU computes each entry alone, and slowly:
 * without a GPU every `step`-th case is enough. */
static bool is_left_out(const struct kernel_test *test, int i, int step)
{
    for (int k = 0; k < test->num_backends; k++)
        if (test->backends[k].b->discrete) return false;
    return i % step != 0;
}

/* Contexts around those from which on kernels compute the entries of a run together, beside short ones and decodes:
 * every number of heads that a KV head may have beside others, every size and type. */
static void runs_of_long_contexts(void **state)
{
    static const int32_t heads[][2] = {{4, 1}, {1, 1}, {3, 1}, {5, 1}, {8, 1}, {9, 1}, {16, 1}, {2, 2}, {12, 2}};
    static const int32_t head_sizes[] = {64, 128, 80, 256, 112};
    static const enum dtype types[] = {DTYPE_BFLOAT16, DTYPE_FLOAT16};
    for (int i = 0; i < 18; i++) {
        if (is_left_out(*state, i, 11)) continue;
        const int32_t runs[] = {8, 1, 3, 2 + i % 7, 1, 8};
        const int32_t lengths[] = {2600 + i, 2100, 40 + i, 2026 + i, 3, 2034 + i % 9};
        struct attention_case c = long_run_case(runs, lengths, 6, 80, heads[i % 9][0], heads[i % 9][1],
                                                head_sizes[i % 5], block_sizes[i % 5]);
        c.dtype = c.cache_dtype = types[i % 2];
        if (i % 4 == 1) c.cache_dtype = i % 8 == 1 ? DTYPE_FP8_E4M3 : DTYPE_FP8_E5M2;
        if (i % 4 == 1) c.kv_scales[0] = 0.37f, c.kv_scales[1] = 0.02f;
        if (i % 3 == 0) c.max_seq_len = 1 << 17;
        check_case(*state, &c);
    }
}

/* One long run, and a few of equal length: clusters, and parts of a unit. */
static void long_runs_of_few_sequences(void **state)
{
    for (int32_t length = 2; length <= 8; length++)
        for (int32_t count = 1; count <= 3; count += 2) {
            if (is_left_out(*state, 2 * length + count / 3, 16)) continue;
            const int32_t least = 65536 / count / (length - 1); /* tokens with which it pays to compute it together */
            const int32_t runs[] = {length, length, length}, lengths[] = {least + 9 * length, least + 30, least + 1000};
            struct attention_case c = long_run_case(runs, lengths, count, 0, 8, 2, length % 2 ? 64 : 128, 16);
            c.max_run_len = length;
            c.dtype = c.cache_dtype = DTYPE_BFLOAT16;
            if (length % 3 == 0) c.cache_dtype = DTYPE_FP8_E4M3;
            check_case(*state, &c);
        }
}

/* More entries than a warp has lanes, with runs across the borders between its rounds. */
static void long_runs_of_many_sequences(void **state)
{
    const int32_t runs[] = {7, 8, 1, 8, 2, 8, 1, 1, 8, 5, 8, 8, 1, 6};
    const int32_t lengths[] = {2100, 2200, 2300, 90, 2400, 2050, 30, 2500, 2041, 2042, 2300, 60, 700, 2222};
    for (int i = 0; i < 3; i++) {
        if (is_left_out(*state, i, 3)) continue;
        struct attention_case c = long_run_case(runs, lengths, 14, 0, i == 2 ? 3 : 4, 1, 64, 16);
        c.dtype = c.cache_dtype = i == 1 ? DTYPE_FLOAT16 : DTYPE_BFLOAT16;
        if (i == 2) c.max_seq_len = 1 << 17;
        check_case(*state, &c);
    }
}

/* Long runs whose entries see other tokens at the beginning, too, and other scores: windows, chunks that begin within a
 * run, ALiBi, soft caps, sinks; two sizes of heads. */
static void variants_of_long_runs(void **state)
{
    static const int32_t windows[] = {0, 2100, 2500, 100, 2033}, chunks[] = {2100, 4196, 64, 2099};
    const int32_t runs[] = {8, 1, 5, 4, 3}, lengths[] = {4204, 2500, 2301, 300, 7};
    static const int32_t head_sizes[] = {64, 128, 256};
    for (int i = 0; i < 18; i++) {
        if (is_left_out(*state, i, 9)) continue;
        struct attention_case c =
            long_run_case(runs, lengths, 5, 80, i % 2 ? 8 : 6, 2, head_sizes[i % 3], block_sizes[i % 5]);
        c.dtype = c.cache_dtype = i % 4 < 2 ? DTYPE_BFLOAT16 : DTYPE_FLOAT16;
        if (i % 7 == 3) c.cache_dtype = DTYPE_FP8_E4M3;
        if (i % 3 != 2) c.params.window = windows[i / 2 % 5];
        if (i % 3 == 2) c.params.chunk = chunks[i / 3 % 4];
        c.poison_before_window = c.params.window + c.params.chunk > 0;
        c.alibi = i % 4 == 1;
        c.params.soft_cap = i % 5 == 3 ? 7 : 0;
        c.sinks = i % 5 == 2 ? SINKS_EVEN : SINKS_NONE;
        if (i == 10) c.v_head_size = c.head_size / 2;
        check_case(*state, &c);
    }
}

/* Each of these makes other tokens visible to each entry of a run: windows and chunks of few tokens, some within the
 * run; scores that depend on the query's position; sinks; heads of two sizes. */
static void variants_of_runs(void **state)
{
    static const int32_t windows[] = {1, 5, 24, 100, 700}, chunks[] = {1, 3, 24, 64, 100},
                         head_sizes[] = {64, 128, 256};
    const int32_t runs[] = {4, 1, 8, 3, 6}, lengths[] = {130, 40, 66, 900, 7};
    for (int i = 0; i < 30; i++) {
        struct attention_case c =
            run_case(runs, lengths, 5, i % 2 ? 8 : 6, 2, head_sizes[i / 2 % 3], block_sizes[i % 5]);
        c.dtype = c.cache_dtype = float_types[i % 3];
        if (i % 7 == 3) c.cache_dtype = DTYPE_FP8_E4M3;
        if (i % 3 != 2) c.params.window = windows[i / 2 % 5];
        if (i % 3 == 2) c.params.chunk = chunks[i / 3 % 5];
        c.poison_before_window = true;
        c.alibi = i % 4 == 1;
        c.params.soft_cap = i % 6 == 4 ? 3 : 0;
        c.sinks = i % 5 == 2 ? SINKS_EVEN : SINKS_NONE;
        if (i % 10 == 9) c.v_head_size = c.head_size / 2;
        check_case(*state, &c);
        c.params.window = c.params.chunk = 0, c.poison_before_window = false;
        if (c.alibi || c.params.soft_cap > 0) check_case(*state, &c);
    }
}

/* Runs, a decode and, on a backend with graphs, padding; then chunks of prefills behind the runs. */
static void runs_in_batches(void **state)
{
    struct kernel_test *test = *state;
    const int32_t runs[] = {4, 1, 5, 1, 1}, lengths[] = {90, 7, 700, 0, 0}, chunks[] = {4, 1, 5, 1},
                  ends[] = {90, 7, 700, 60};
    for (int i = 0; i < test->num_backends; i++) {
        struct attention_case c = run_case(runs, lengths, 5, 8, 2, 64, 16);
        struct fixture f;
        c.dtype = c.cache_dtype = DTYPE_BFLOAT16;
        c.max_seq_len = 1 << 17;
        c.query_lens[10] = c.query_lens[11] = 0;
        if (!test->backends[i].b->capture_begin) c.num_seqs = 10;
        fixture_make(&f, &c, &test->backends[i], &test->random);
        workspace_for(&test->backends[i], &f);
        run_route(&f, ROUTE_V1, "v1");
        run_route(&f, ROUTE_V2, "v2");
        run_route(&f, ROUTE_V2, "v2 again");
        for (int p = 0; p < NUM_PREPARATIONS; p++)
            if (f.tb->b->decode_attention) check_fused(&f, &preparations[p], &test->random);
        fixture_free(&f);
    }
    for (int t = 0; t < 3; t++) {
        struct attention_case c = run_case(chunks, ends, 4, 4, 1, 128, 16);
        c.dtype = c.cache_dtype = float_types[t];
        c.query_lens[10] = 33;
        check_case(test, &c);
    }
}

/* Random runs. */
static void random_runs(void **state)
{
    struct kernel_test *test = *state;
    struct random *r = &test->random;
    static const int32_t sizes[] = {64, 80, 96, 112, 120, 128, 192, 256};
    for (int i = 0; i < 25; i++) {
        const int32_t kv_heads = (int32_t)random_between(r, 1, 3), group = (int32_t)random_between(r, 1, 9);
        const int32_t count = (int32_t)random_between(r, 1, 8), longest = (int32_t)random_between(r, 2, 1 + MAX_DRAFTS);
        int32_t runs[8], lengths[8];
        for (int k = 0; k < count; k++) {
            runs[k] = (int32_t)random_between(r, 1, longest);
            lengths[k] = runs[k] + (int32_t)random_between(r, 0, 500);
        }
        struct attention_case c = run_case(runs, lengths, count, kv_heads * group, kv_heads,
                                           sizes[random_between(r, 0, 7)], block_sizes[random_between(r, 0, 4)]);
        c.max_run_len = longest;
        c.dtype = (enum dtype)random_between(r, 0, 2), c.cache_dtype = (enum dtype)random_between(r, 0, 2);
        c.alibi = random_between(r, 0, 3) == 0;
        c.sinks = (enum sinks)random_between(r, 0, 2);
        if (random_between(r, 0, 2) == 0) c.params.window = (int32_t)random_between(r, 1, 200);
        if (random_between(r, 0, 3) == 0) c.params.chunk = (int32_t)random_between(r, 1, 300), c.params.window = 0;
        if (random_between(r, 0, 3) == 0) c.params.soft_cap = 5;
        c.poison_before_window = c.params.window + c.params.chunk > 0;
        check_case(test, &c);
    }
}

/* Element offsets above 2^31, on a device with the memory for it. */
static void reads_far_blocks(void **state)
{
    struct kernel_test *test = *state;
    static const enum dtype types[] = {DTYPE_FLOAT32, DTYPE_BFLOAT16};
    const int32_t lengths[] = {100, 33};
    for (int i = 0; i < test->num_backends; i++)
        for (int t = 0; t < 2 && test->backends[i].b->discrete; t++) {
            struct test_backend *tb = &test->backends[i];
            struct backend *b = tb->b;
            struct error err;
            struct fixture f;
            struct attention_case c = decode_case(lengths, 2, 8, 8, 128, 16);
            void *far[2];
            int32_t tables[2 * 8];
            c.dtype = c.cache_dtype = types[t];
            fixture_make(&f, &c, tb, &test->random);
            workspace_for(tb, &f);
            const int64_t block = f.k_cache.bytes / 11, shift = ((int64_t)5 << 30) / (8 * 128 * 16),
                          bytes = f.k_cache.bytes;
            const int64_t all = shift * block + bytes;
            if (b->memory_alloc(b, MEMORY_DEVICE, all, &far[0], &err) != STATUS_OK) skip();
            if (b->memory_alloc(b, MEMORY_DEVICE, all, &far[1], &err) != STATUS_OK) skip();
            b->fill(b, far[0], 0xff, all);
            b->fill(b, far[1], 0xff, all);
            b->copy(b, (uint8_t *)far[0] + shift * block, f.k_cache.data, bytes, NULL);
            b->copy(b, (uint8_t *)far[1] + shift * block, f.v_cache.data, bytes, NULL);
            memcpy(tables, f.tables.host, sizeof tables);
            for (int k = 0; k < 2 * f.max_blocks; k++) tables[k] += (int32_t)shift;
            struct tensor far_tables = tensor_bytes(b, tables, (int64_t)sizeof(int32_t) * 2 * f.max_blocks);
            void *near[] = {f.k_cache.data, f.v_cache.data, f.tables.data};
            f.k_cache.data = far[0], f.v_cache.data = far[1], f.tables.data = far_tables.data;
            run_route(&f, ROUTE_V1, "v1 far away");
            run_route(&f, ROUTE_V2, "v2 far away");
            run_route(&f, ROUTE_PREFILL, "prefill far away");
            run_prefill_of_other_gpus(&f);
            f.k_cache.data = near[0], f.v_cache.data = near[1], f.tables.data = near[2];
            tensor_free(&far_tables);
            for (int k = 0; k < 2; k++) b->memory_free(b, MEMORY_DEVICE, far[k], all);
            fixture_free(&f);
        }
}

/* Scores in the hundreds: exp overflows unless the maximum is subtracted first. The scores are exact in float32; others
 * of that size would be off by 1e-5, and the result with them. */
static void survives_large_scores(void **state)
{
    const int32_t lengths[] = {300, 1100};
    struct attention_case c = decode_case(lengths, 2, 2, 1, 64, 16);
    c.params.scale = 20;
    c.grain = 0.125;
    check_case(*state, &c);
}

static void prefills(void **state)
{
    static const int32_t lengths[] = {1, 2, 7, 16, 31, 65, 150};
    for (int b = 0; b < 5; b++) {
        struct attention_case c = {.num_seqs = 7, .num_heads = 4, .num_kv_heads = 2, .head_size = 64};
        c.block_size = block_sizes[b];
        for (int i = 0; i < 7; i++) c.query_lens[i] = c.seq_lens[i] = lengths[i];
        c.query_lens[0] = 1;
        check_case(*state, &c);
    }
}

/* Chunks of a prefill that end at a block edge or next to one, with decodes before them. */
static void mixes_decodes_and_chunks(void **state)
{
    static const enum dtype types[] = {DTYPE_FLOAT32, DTYPE_FLOAT16, DTYPE_BFLOAT16};
    for (int t = 0; t < 3; t++) {
        struct attention_case c = {.num_seqs = 8,
                                   .query_lens = {1, 1, 1, 2, 16, 33, 70, 5},
                                   .seq_lens = {1, 600, 33, 2, 48, 34, 200, 133},
                                   .num_heads = 6,
                                   .num_kv_heads = 2,
                                   .head_size = 80,
                                   .block_size = 16,
                                   .dtype = types[t],
                                   .cache_dtype = types[t]};
        check_case(*state, &c);
    }
}

static void prefills_every_cache_type(void **state)
{
    for (enum dtype cache = DTYPE_FLOAT32; cache <= DTYPE_FP8_E5M2; cache++) {
        struct attention_case c = {.num_seqs = 2,
                                   .query_lens = {20, 40},
                                   .seq_lens = {30, 40},
                                   .num_heads = 4,
                                   .num_kv_heads = 1,
                                   .head_size = 112,
                                   .block_size = 32,
                                   .cache_dtype = cache,
                                   .kv_scales = {0.5f, 0.25f}};
        if (dtype_size(cache) != 1) c.kv_scales[0] = c.kv_scales[1] = 1;
        check_case(*state, &c);
    }
}

/* The types of tensor cores: every block size and head size, chunks after a prefix, windows with freed blocks. */
static void prefills_16_bit_types(void **state)
{
    static const int32_t head_sizes[] = {64, 72, 128, 256};
    for (int b = 0; b < 5; b++)
        for (int h = 0; h < 4; h++) {
            struct attention_case c = {.num_seqs = 4,
                                       .query_lens = {1, 40, 150, 33},
                                       .seq_lens = {1, 40, 331, 333},
                                       .num_heads = 6,
                                       .num_kv_heads = 2,
                                       .head_size = head_sizes[h],
                                       .block_size = block_sizes[b],
                                       .dtype = (b + h) % 2 ? DTYPE_FLOAT16 : DTYPE_BFLOAT16};
            c.cache_dtype = c.dtype;
            c.params.window = (b + h) % 3 ? 100 : 0;
            c.poison_before_window = c.params.window > 0;
            check_case(*state, &c);
        }
}

/* Prefills of an fp8 cache: contexts of several tiles, both types. */
static void prefills_fp8_caches(void **state)
{
    static const int32_t head_sizes[] = {64, 80, 128, 256};
    for (int i = 0; i < 16; i++) {
        struct attention_case c = {.num_seqs = 4,
                                   .query_lens = {1, 40, 90, 133},
                                   .seq_lens = {1, 40, 431, 333},
                                   .num_heads = i % 2 ? 6 : 8,
                                   .num_kv_heads = 2,
                                   .head_size = head_sizes[i % 4],
                                   .block_size = block_sizes[1 + i / 4],
                                   .dtype = i / 2 % 2 ? DTYPE_FLOAT16 : DTYPE_BFLOAT16,
                                   .cache_dtype = i % 3 == 2 ? DTYPE_FP8_E5M2 : DTYPE_FP8_E4M3,
                                   .kv_scales = {0.37f, 0.02f}};
        c.params.window = i % 3 ? 100 : 0;
        c.poison_before_window = c.params.window > 0;
        check_case(*state, &c);
    }
}

/* Soft cap, ALiBi, both, and each with a window, for every tile size of tensor cores, with 16-bit and fp8 caches. */
static void prefills_16_bit_variants(void **state)
{
    static const int32_t head_sizes[] = {64, 128, 256};
    static const enum dtype types[] = {DTYPE_FLOAT16, DTYPE_BFLOAT16};
    for (int i = 0; i < 24; i++) {
        struct attention_case c = {.num_seqs = 3,
                                   .query_lens = {1, 60, 33},
                                   .seq_lens = {1, 200, 133},
                                   .num_heads = 6,
                                   .num_kv_heads = 2,
                                   .head_size = head_sizes[i % 3],
                                   .block_size = 16,
                                   .dtype = types[i / 3 % 2],
                                   .alibi = i % 4 != 1,
                                   .params = {.soft_cap = i % 4 < 2 ? 5 : 0, .window = i % 2 ? 50 : 0}};
        c.cache_dtype = i < 12 ? c.dtype : i < 18 ? DTYPE_FP8_E4M3 : DTYPE_FP8_E5M2;
        c.poison_before_window = c.params.window > 0;
        if (i >= 12) c.kv_scales[0] = 0.5f, c.kv_scales[1] = 0.25f;
        check_case(*state, &c);
    }
}

/* Enough query rows for the largest tiles, and for several tiles of rows for each block of a GPU; the last case is for
 * the kernel of long contexts. */
static void prefills_many_rows(void **state)
{
    for (int i = 0; i < 4; i++) {
        const struct attention_case c = {.num_seqs = 5,
                                         .query_lens = {200, 3, 193, 17, 50},
                                         .seq_lens = {200, 210, 231, 300, 80},
                                         .num_heads = 32,
                                         .num_kv_heads = 32,
                                         .head_size = i % 2 ? 128 : 64,
                                         .block_size = 16,
                                         .dtype = DTYPE_BFLOAT16,
                                         .cache_dtype = i == 2 ? DTYPE_FP8_E4M3 : DTYPE_BFLOAT16,
                                         .max_seq_len = i == 3 ? 1 << 14 : 0};
        check_case(*state, &c);
    }
}

/* Chunks after long contexts, beside sequences so short that there is nothing for some of the blocks that share a tile
 * of rows. */
static void prefills_after_long_contexts(void **state)
{
    static const int32_t longest[] = {2100, 1100, 2304, 1030, 2049, 1500};
    for (int i = 0; i < 6; i++) {
        struct attention_case c = {.num_seqs = 4,
                                   .query_lens = {1, 70, 5, 33},
                                   .seq_lens = {140, longest[i], 700, 33},
                                   .num_heads = 2,
                                   .num_kv_heads = 1,
                                   .head_size = i % 2 ? 128 : 64,
                                   .block_size = block_sizes[i % 5],
                                   .dtype = i % 3 ? DTYPE_BFLOAT16 : DTYPE_FLOAT16,
                                   .params = {.window = i == 5 ? 1000 : 0}};
        c.cache_dtype = c.dtype;
        c.poison_before_window = c.params.window > 0;
        check_case(*state, &c);
    }
}

/* A case with decodes and chunks, which the variants start from. */
static struct attention_case variant_case(void)
{
    return (struct attention_case){.num_seqs = 6,
                                   .query_lens = {1, 1, 1, 10, 50, 40},
                                   .seq_lens = {5, 300, 700, 10, 180, 40},
                                   .num_heads = 4,
                                   .num_kv_heads = 2,
                                   .head_size = 64,
                                   .block_size = 16};
}

/* The decodes of a case alone, for v1 and v2. */
static void check_variant(struct kernel_test *test, struct attention_case c)
{
    check_case(test, &c);
    c.num_seqs = 3;
    check_case(test, &c);
}

static void alibi(void **state)
{
    struct attention_case c = variant_case();
    c.alibi = true;
    check_variant(*state, c);
}

static void soft_cap(void **state)
{
    struct attention_case c = variant_case();
    c.params.soft_cap = 3;
    c.params.scale = 1;
    check_variant(*state, c);
}

static void sliding_window(void **state)
{
    static const int32_t windows[] = {1, 5, 16, 17, 64, 250, 512, 5000};
    for (int i = 0; i < 8; i++) {
        struct attention_case c = variant_case();
        c.params.window = windows[i];
        c.poison_before_window = i % 2 == 0;
        check_variant(*state, c);
    }
}

/* Decodes far behind what their windows have passed, with the kernels for tensor cores too: every size of head and
 * block, few sequences (whose context is cut into parts) and many. */
static void windows_of_decodes(void **state)
{
    static const int32_t head_sizes[] = {64, 72, 128, 256}, windows[] = {1, 24, 100, 700};
    static const enum dtype types[] = {DTYPE_FLOAT32, DTYPE_FLOAT16, DTYPE_BFLOAT16};
    int32_t many[40];
    for (int i = 0; i < 40; i++) many[i] = 1 + i * 17;
    for (int i = 0; i < 30; i++) {
        struct attention_case c = i % 4 == 3 ? decode_case(many, 40, 4, 2, 64, block_sizes[i % 5])
                                             : decode_case((const int32_t[]){2100, 3, 700, 130}, 4, 4, 2,
                                                           head_sizes[i / 5 % 4], block_sizes[i % 5]);
        c.dtype = c.cache_dtype = types[i % 3];
        if (i % 7 == 0 && c.head_size % 16 == 0) c.cache_dtype = i % 2 ? DTYPE_FP8_E4M3 : DTYPE_FP8_E5M2;
        c.params.window = windows[i / 3 % 4];
        c.poison_before_window = true;
        check_case(*state, &c);
    }
}

/* Chunks far behind what their windows have passed. */
static void windows_of_chunks(void **state)
{
    static const int32_t head_sizes[] = {64, 128, 256}, windows[] = {1, 24, 100, 512};
    static const enum dtype types[] = {DTYPE_FLOAT32, DTYPE_FLOAT16, DTYPE_BFLOAT16};
    for (int i = 0; i < 15; i++) {
        struct attention_case c = {.num_seqs = 4,
                                   .query_lens = {1, 16, 140, 33},
                                   .seq_lens = {900, 600, 700, 333},
                                   .num_heads = 4,
                                   .num_kv_heads = 2,
                                   .head_size = head_sizes[i / 2 % 3],
                                   .block_size = block_sizes[i % 5],
                                   .dtype = types[i % 3],
                                   .params = {.window = windows[i / 3 % 4]},
                                   .poison_before_window = true};
        c.cache_dtype = i % 7 == 0 ? DTYPE_FP8_E4M3 : c.dtype;
        check_case(*state, &c);
    }
}

/* Sinks beside every kernel: decodes whose context is whole or cut into parts, chunks, all types and head sizes, with
 * and without windows; few and many sequences. */
static void sinks(void **state)
{
    static const int32_t head_sizes[] = {64, 72, 128, 256};
    static const enum dtype types[] = {DTYPE_BFLOAT16, DTYPE_FLOAT16, DTYPE_FLOAT32};
    int32_t many[40];
    for (int i = 0; i < 40; i++) many[i] = 1 + i * 17;
    for (int i = 0; i < 24; i++) {
        struct attention_case c = i % 4 == 3 ? decode_case(many, 40, 18, 2, 64, block_sizes[i % 5])
                                             : decode_case((const int32_t[]){2100, 3, 700, 130}, 4, 4, 2,
                                                           head_sizes[i / 3 % 4], block_sizes[i % 5]);
        c.sinks = i % 5 == 4 ? SINKS_FAR : SINKS_EVEN;
        c.dtype = c.cache_dtype = types[i % 3];
        if (i % 7 == 0 && c.head_size % 16 == 0) c.cache_dtype = i % 2 ? DTYPE_FP8_E4M3 : DTYPE_FP8_E5M2;
        c.params.window = i % 2 ? 100 : 0;
        c.params.soft_cap = i % 6 == 5 ? 3 : 0;
        c.poison_before_window = c.params.window > 0;
        check_case(*state, &c);
        c.query_lens[1] = i % 4 == 3 ? 1 : 3, c.query_lens[2] = 140 < c.seq_lens[2] ? 140 : 1;
        if (c.num_seqs == 4) check_case(*state, &c);
    }
}

/* Chunks of tokens that attend to themselves alone: decodes at the edges of chunks, prefills that begin in one chunk
 * and end in another, and what lies in earlier chunks is NaN or in freed blocks. */
static void chunked(void **state)
{
    static const int32_t chunks[] = {1, 24, 64, 100, 128, 1024, 5000}, head_sizes[] = {64, 128, 256};
    static const enum dtype types[] = {DTYPE_BFLOAT16, DTYPE_FLOAT32, DTYPE_FLOAT16};
    for (int i = 0; i < 21; i++) {
        struct attention_case c = decode_case((const int32_t[]){2100, 64, 65, 130, 1024, 1025}, 6, 4, 2,
                                              head_sizes[i / 2 % 3], block_sizes[i % 5]);
        c.params.chunk = chunks[i % 7];
        c.dtype = c.cache_dtype = types[i % 3];
        if (i % 4 == 3) c.cache_dtype = i % 8 == 3 ? DTYPE_FP8_E4M3 : DTYPE_FP8_E5M2;
        c.sinks = i % 6 == 5 ? SINKS_EVEN : SINKS_NONE;
        c.poison_before_window = i % 5 != 4;
        check_case(*state, &c);
        c.query_lens[2] = 65, c.query_lens[3] = 17, c.query_lens[4] = 3, c.query_lens[5] = 300;
        check_case(*state, &c);
    }
}

static void block_sparse(void **state)
{
    static const int32_t strides[] = {2, 3, 8}, steps[] = {0, 1, 3, -1, -2}, sizes[] = {16, 32, 64};
    for (int i = 0; i < 15; i++) {
        struct attention_case c = variant_case();
        c.params.sparse_vertical_stride = strides[i % 3];
        c.params.sparse_head_sliding_step = steps[i % 5];
        c.params.sparse_block_size = sizes[i / 5];
        c.params.sparse_local_blocks = 1 + i % 4;
        check_variant(*state, c);
    }
}

/* Masked keys must not matter, whatever they hold. With no local block and a stride longer than the context, every key
 * is masked, and the output is 0. */
static void no_live_key_gives_zero(void **state)
{
    const int32_t lengths[] = {10, 16};
    struct attention_case c = decode_case(lengths, 2, 2, 2, 64, 16);
    c.params.sparse_vertical_stride = 100;
    c.params.sparse_block_size = 16;
    for (int i = 0; i < ((struct kernel_test *)*state)->num_backends; i++) {
        struct test_backend *tb = &((struct kernel_test *)*state)->backends[i];
        struct fixture f;
        fixture_make(&f, &c, tb, &((struct kernel_test *)*state)->random);
        workspace_for(tb, &f);
        memset(f.expected, 0, sizeof(double) * 2 * 2 * 64);
        run_route(&f, ROUTE_V1, "v1");
        run_route(&f, ROUTE_V2, "v2");
        run_route(&f, ROUTE_PREFILL, "prefill");
        fixture_free(&f);
    }
}

static void variants_combine(void **state)
{
    struct attention_case c = variant_case();
    c.alibi = true;
    c.params.soft_cap = 20;
    c.params.window = 77;
    c.poison_before_window = true;
    c.dtype = DTYPE_BFLOAT16;
    c.cache_dtype = DTYPE_FP8_E4M3;
    c.kv_scales[0] = 0.1f;
    c.kv_scales[1] = 0.3f;
    check_variant(*state, c);
    c.params.window = 0;
    c.poison_before_window = false;
    c.params.sparse_vertical_stride = 3;
    c.params.sparse_block_size = 32;
    c.params.sparse_local_blocks = 2;
    check_variant(*state, c);
}

/* Random shapes. */
static void random_cases(void **state)
{
    struct kernel_test *test = *state;
    struct random *r = &test->random;
    static const int32_t sizes[] = {64, 80, 96, 112, 120, 128, 192, 256};
    for (int i = 0; i < 25; i++) {
        const int32_t kv_heads = (int32_t)random_between(r, 1, 3), group = (int32_t)random_between(r, 1, 5);
        struct attention_case c = {.num_seqs = (int32_t)random_between(r, 1, 5),
                                   .num_heads = kv_heads * group,
                                   .num_kv_heads = kv_heads,
                                   .head_size = sizes[random_between(r, 0, 7)],
                                   .block_size = block_sizes[random_between(r, 0, 4)],
                                   .dtype = (enum dtype)random_between(r, 0, 2),
                                   .cache_dtype = (enum dtype)random_between(r, 0, 2),
                                   .alibi = random_between(r, 0, 3) == 0,
                                   .sinks = (enum sinks)random_between(r, 0, 2)};
        if (random_between(r, 0, 2) == 0) c.params.window = (int32_t)random_between(r, 1, 200);
        if (random_between(r, 0, 3) == 0) c.params.chunk = (int32_t)random_between(r, 1, 300), c.params.window = 0;
        if (random_between(r, 0, 3) == 0) c.params.soft_cap = 5;
        c.poison_before_window = c.params.window + c.params.chunk > 0;
        const int32_t decodes = (int32_t)random_between(r, 0, c.num_seqs);
        for (int32_t s = 0; s < c.num_seqs; s++) {
            c.query_lens[s] = s < decodes ? 1 : (int32_t)random_between(r, 2, 60);
            c.seq_lens[s] = c.query_lens[s] + (int32_t)random_between(r, 0, 300);
        }
        check_case(test, &c);
    }
}

static void chooses_v1_by_the_rule(void **state)
{
    (void)state;
    assert_true(paged_attention_use_v1(1, 1, 1));
    assert_true(paged_attention_use_v1(512, 1, 32));
    assert_false(paged_attention_use_v1(513, 1, 32));
    assert_false(paged_attention_use_v1(8192, 16, 32));
    assert_true(paged_attention_use_v1(8192, 17, 32));
    assert_false(paged_attention_use_v1(8193, 1000, 32));
    assert_false(paged_attention_use_v1(INT32_MAX, 1, 1));
    assert_true(paged_attention_use_v1(8192, 1 << 20, 1 << 12));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decodes_at_every_edge),
        cmocka_unit_test(decodes_long_contexts),
        cmocka_unit_test(every_head_size),
        cmocka_unit_test(heads_of_two_sizes),
        cmocka_unit_test(decodes_every_type),
        cmocka_unit_test(decodes_every_head_ratio),
        cmocka_unit_test(decodes_many_sequences),
        cmocka_unit_test(padding_rows),
        cmocka_unit_test(runs_of_every_length),
        cmocka_unit_test(runs_of_few_sequences),
        cmocka_unit_test(runs_among_many_decodes),
        cmocka_unit_test(runs_of_long_contexts),
        cmocka_unit_test(long_runs_of_few_sequences),
        cmocka_unit_test(long_runs_of_many_sequences),
        cmocka_unit_test(variants_of_long_runs),
        cmocka_unit_test(variants_of_runs),
        cmocka_unit_test(runs_in_batches),
        cmocka_unit_test(random_runs),
        cmocka_unit_test(reads_far_blocks),
        cmocka_unit_test(survives_large_scores),
        cmocka_unit_test(prefills),
        cmocka_unit_test(mixes_decodes_and_chunks),
        cmocka_unit_test(prefills_every_cache_type),
        cmocka_unit_test(prefills_16_bit_types),
        cmocka_unit_test(prefills_fp8_caches),
        cmocka_unit_test(prefills_16_bit_variants),
        cmocka_unit_test(prefills_many_rows),
        cmocka_unit_test(prefills_after_long_contexts),
        cmocka_unit_test(alibi),
        cmocka_unit_test(soft_cap),
        cmocka_unit_test(sliding_window),
        cmocka_unit_test(windows_of_decodes),
        cmocka_unit_test(windows_of_chunks),
        cmocka_unit_test(sinks),
        cmocka_unit_test(chunked),
        cmocka_unit_test(block_sparse),
        cmocka_unit_test(no_live_key_gives_zero),
        cmocka_unit_test(variants_combine),
        cmocka_unit_test(random_cases),
        cmocka_unit_test(chooses_v1_by_the_rule),
    };
    cmocka_set_test_filter(getenv("QUIRE_TEST_FILTER"));
    return cmocka_run_group_tests(tests, kernel_test_setup, kernel_test_teardown);
}
