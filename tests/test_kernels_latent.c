/* Latent attention against float64, on caches whose unused slots are all NaN: what is stored, decodes, runs, padding,
 * chunks and prefills of every type; the matmuls of heads; and all of them together against attention over the K and V
 * of each head. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/kernel_test.h"

static const enum dtype types[] = {DTYPE_FLOAT32, DTYPE_BFLOAT16, DTYPE_FLOAT16};
static const int32_t block_sizes[] = {16, 32, 8, 64, 128};

enum { MAX_SEQS = 16 };

struct latent_case {
    int32_t num_seqs;
    int32_t query_lens[MAX_SEQS], seq_lens[MAX_SEQS]; /* decodes first */
    bool follows[MAX_SEQS];                           /* entry i is the next one of the run of entry i - 1 */
    int32_t num_heads, rank, rope, block_size;
    enum dtype dtype, cache_dtype;
    float kv_scale;   /* of an fp8 cache; 0: 1 */
    double amplitude; /* of queries; 0: 1 */
    bool loose;       /* lengths are below their bounds, as in a captured graph */
};

struct fixture {
    const struct latent_case *c;
    const struct test_backend *tb;
    int32_t num_tokens, num_decodes, max_query_len, max_seq_len, max_run_len, max_blocks;
    int32_t starts[MAX_SEQS + 1], state_indices[MAX_SEQS];
    int64_t size, block_stride;    /* size: rank + rope */
    double *vectors[MAX_SEQS];     /* [seq_len, size] as real numbers */
    double *query_host, *expected; /* [num_tokens, num_heads, size], and rank */
    struct tensor query, cache, tables, seq_lens, starts_on, states_on, scales;
};

static double scale_of(const struct latent_case *c)
{
    return 1 / sqrt(c->rank / 4.0 + c->rope);
}

/* The last entry of the run of entry i, which has the tokens of all of them. */
static int32_t run_last(const struct latent_case *c, int32_t i)
{
    while (i + 1 < c->num_seqs && c->follows[i + 1]) i++;
    return i;
}

static void make_lengths(struct fixture *f)
{
    const struct latent_case *c = f->c;
    int32_t run = 0;
    for (int32_t i = 0; i < c->num_seqs; i++) {
        f->starts[i + 1] = f->starts[i] + c->query_lens[i];
        if (c->query_lens[i] > f->max_query_len) f->max_query_len = c->query_lens[i];
        if (c->seq_lens[i] > f->max_seq_len) f->max_seq_len = c->seq_lens[i];
        if (c->query_lens[i] <= 1 && f->num_decodes == i) f->num_decodes++;
        run = c->follows[i] ? run + 1 : 1;
        if (run > f->max_run_len) f->max_run_len = run;
    }
    f->num_tokens = f->starts[c->num_seqs];
    f->max_blocks = (f->max_seq_len + c->block_size - 1) / c->block_size + 1;
}

static int64_t cache_index(const struct fixture *f, int64_t block, int64_t offset)
{
    return block * f->block_stride + offset * f->size;
}

static void fill_sequence(struct fixture *f, int32_t i, const int32_t *blocks, struct random *random)
{
    const struct latent_case *c = f->c;
    const double scale = c->kv_scale > 0 ? (double)c->kv_scale : 1;
    f->vectors[i] = malloc(sizeof(double) * (size_t)(c->seq_lens[i] * f->size + 1));
    for (int64_t t = 0; t < c->seq_lens[i]; t++)
        for (int64_t d = 0; d < f->size; d++) {
            const int64_t index = cache_index(f, blocks[t / c->block_size], t % c->block_size) + d;
            tensor_set(&f->cache, index, (2 * random_uniform(random) - 0.8) / scale);
            f->vectors[i][t * f->size + d] = tensor_get(&f->cache, index) * scale;
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

/* Blocks are assigned in random order, and so are state indices. No sequence has block 0, which is all NaN; so is what
 * lies between blocks. */
static void make_cache(struct fixture *f, struct random *random)
{
    const struct latent_case *c = f->c;
    const int32_t num_blocks = c->num_seqs * f->max_blocks + 1;
    int32_t *order = malloc(sizeof *order * (size_t)num_blocks), next = 0;
    int32_t *tables = calloc((size_t)c->num_seqs * (size_t)f->max_blocks, sizeof *tables);
    for (int32_t i = 0; i < num_blocks - 1; i++) order[i] = i + 1;
    shuffle(order, num_blocks - 1, random);
    for (int32_t i = 0; i < c->num_seqs; i++) f->state_indices[i] = i;
    shuffle(f->state_indices, c->num_seqs, random);
    f->block_stride = c->block_size * f->size + 64 * random_between(random, 0, 2);
    f->cache = tensor_poison(f->tb->b, c->cache_dtype, num_blocks * f->block_stride);
    for (int32_t i = 0; i < c->num_seqs; i++) {
        const int32_t used = (c->seq_lens[i] + c->block_size - 1) / c->block_size;
        if (run_last(c, i) != i) continue;
        memcpy(tables + (int64_t)f->state_indices[i] * f->max_blocks, order + next, sizeof *order * (size_t)used);
        fill_sequence(f, i, order + next, random);
        next += used;
    }
    for (int32_t i = 0; i < c->num_seqs; i++) {
        f->state_indices[i] = f->state_indices[run_last(c, i)];
        f->vectors[i] = f->vectors[run_last(c, i)];
    }
    tensor_upload(&f->cache);
    f->tables = tensor_bytes(f->tb->b, tables, (int64_t)sizeof *tables * c->num_seqs * f->max_blocks);
    free(tables), free(order);
}

/* Head index % num_heads of token index / num_heads. */
static void attend_head(void *fixture, int64_t index, int thread)
{
    (void)thread;
    const struct fixture *f = fixture;
    const struct latent_case *c = f->c;
    const double *query = f->query_host + index * f->size;
    double *out = f->expected + index * c->rank, max = -INFINITY, sum = 0;
    int32_t i = 0;
    while (index / c->num_heads >= f->starts[i + 1]) i++;
    const int64_t tokens = c->seq_lens[i] - f->starts[i + 1] + index / c->num_heads + 1;
    double *scores = malloc(sizeof(double) * (size_t)(tokens > 0 ? tokens : 1));
    memset(out, 0, sizeof(double) * (size_t)c->rank);
    for (int64_t t = 0; t < tokens; t++) {
        scores[t] = 0;
        for (int64_t d = 0; d < f->size; d++) scores[t] += query[d] * f->vectors[i][t * f->size + d];
        scores[t] *= scale_of(c);
        max = fmax(max, scores[t]);
    }
    for (int64_t t = 0; t < tokens; t++) scores[t] = exp(scores[t] - max), sum += scores[t];
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t d = 0; d < c->rank; d++) out[d] += scores[t] / sum * f->vectors[i][t * f->size + d];
    free(scores);
}

static void fixture_make(struct fixture *f, const struct latent_case *c, const struct test_backend *tb)
{
    *f = (struct fixture){.c = c, .tb = tb, .size = c->rank + c->rope};
    const float scales[] = {c->kv_scale > 0 ? c->kv_scale : 1, NAN};
    make_lengths(f);
    make_cache(f, tb->random);
    const int64_t rows = (int64_t)f->num_tokens * c->num_heads;
    f->query = tensor_random(tb->b, c->dtype, rows * f->size, c->amplitude > 0 ? c->amplitude : 1, tb->random);
    f->query_host = tensor_doubles(&f->query);
    f->expected = malloc(sizeof(double) * (size_t)(rows * c->rank + 1));
    reference_for(rows, attend_head, f);
    f->seq_lens = tensor_bytes(tb->b, c->seq_lens, (int64_t)sizeof(int32_t) * c->num_seqs);
    f->starts_on = tensor_bytes(tb->b, f->starts, (int64_t)sizeof(int32_t) * (c->num_seqs + 1));
    f->states_on = tensor_bytes(tb->b, f->state_indices, (int64_t)sizeof(int32_t) * c->num_seqs);
    f->scales = tensor_bytes(tb->b, scales, sizeof scales);
}

static struct tensor copy_of(const struct tensor *t, struct backend *b)
{
    struct tensor copy = tensor_bytes(b, t->host, t->bytes);
    copy.dtype = t->dtype;
    copy.count = t->count;
    return copy;
}

/* The tensors of a fixture. */
enum { NUM_TENSORS = 7 };
static void list_tensors(struct fixture *f, struct tensor *out[NUM_TENSORS])
{
    struct tensor *const all[NUM_TENSORS] = {&f->query,     &f->cache,     &f->tables, &f->seq_lens,
                                             &f->starts_on, &f->states_on, &f->scales};
    memcpy(out, all, sizeof all);
}

/* The same numbers on another backend: they are computed once. `from` must outlive the copy. */
static void fixture_copy(struct fixture *f, const struct fixture *from, const struct test_backend *tb)
{
    struct tensor *tensors[NUM_TENSORS];
    *f = *from;
    f->tb = tb;
    list_tensors(f, tensors);
    for (int i = 0; i < NUM_TENSORS; i++) *tensors[i] = copy_of(tensors[i], tb->b);
}

static void fixture_free(struct fixture *f, bool is_copy)
{
    struct tensor *tensors[NUM_TENSORS];
    list_tensors(f, tensors);
    for (int i = 0; i < NUM_TENSORS; i++) tensor_free(tensors[i]);
    if (is_copy) return;
    for (int32_t i = 0; i < f->c->num_seqs; i++)
        if (run_last(f->c, i) == i) free(f->vectors[i]);
    free(f->query_host), free(f->expected);
}

static struct latent_attention_args arguments(const struct fixture *f, void *out)
{
    const struct latent_case *c = f->c;
    return (struct latent_attention_args){.out = out,
                                          .query = f->query.data,
                                          .cache = f->cache.data,
                                          .block_tables = f->tables.data,
                                          .block_table_stride = f->max_blocks,
                                          .seq_lens = f->seq_lens.data,
                                          .query_start = f->starts_on.data,
                                          .state_indices = f->states_on.data,
                                          .num_seqs = c->num_seqs,
                                          .num_decodes = f->num_decodes,
                                          .num_heads = c->num_heads,
                                          .rank = c->rank,
                                          .rope = c->rope,
                                          .block_size = c->block_size,
                                          .block_stride = f->block_stride,
                                          .num_tokens = f->num_tokens,
                                          .max_query_len = f->max_query_len,
                                          .max_seq_len = c->loose ? 8 * f->max_seq_len : f->max_seq_len,
                                          .max_run_len = c->loose ? 1 + MAX_DRAFTS : f->max_run_len,
                                          .scale = (float)scale_of(c),
                                          .dtype = c->dtype,
                                          .cache_dtype = c->cache_dtype,
                                          .kv_scales = dtype_size(c->cache_dtype) == 1 ? f->scales.data : NULL};
}

static struct workspace_query workspace_query_of(const struct fixture *f)
{
    const struct latent_case *c = f->c;
    return (struct workspace_query){.max_num_tokens = f->num_tokens,
                                    .max_num_seqs = c->num_seqs,
                                    .max_model_len = f->max_seq_len,
                                    .num_heads = c->num_heads,
                                    .head_size = c->rank + c->rope,
                                    .block_size = c->block_size,
                                    .latent_rank = c->rank,
                                    .max_in_features = 64,
                                    .vocab_size = 64};
}

static void workspace_for(struct test_backend *tb, const struct fixture *f)
{
    const struct workspace_query query = workspace_query_of(f);
    use_workspace(tb, &query);
}

static void check_attention(struct test_backend *tb, const struct fixture *f)
{
    const struct latent_case *c = f->c;
    char what[200];
    workspace_for(tb, f);
    struct tensor out = tensor_poison(tb->b, c->dtype, (int64_t)f->num_tokens * c->num_heads * c->rank);
    const struct latent_attention_args args = arguments(f, out.data);
    /* A GPU's second call finds the workspace as the first one has left it. */
    for (int i = 0; i < (tb->b->discrete ? 2 : 1); i++) tb->b->latent_attention(tb->b, &args);
    tensor_download(&out);
    snprintf(what, sizeof what,
             "latent attention: %d entries, runs of %d, up to %d of %d tokens, %d heads of %d + %d, "
             "blocks of %d, %s, %s",
             c->num_seqs, f->max_run_len, f->max_query_len, f->max_seq_len, c->num_heads, c->rank, c->rope,
             c->block_size, dtype_name(c->dtype), dtype_name(c->cache_dtype));
    check_close(tb, what, &out, f->expected, out.count, c->dtype);
    tensor_free(&out);
}

static void check_case(struct kernel_test *test, const struct latent_case *c)
{
    struct fixture f;
    fixture_make(&f, c, &test->backends[0]);
    for (int b = 0; b < test->num_backends; b++) {
        struct test_backend *tb = &test->backends[b];
        struct fixture copy;
        if (!tb->b->latent_attention || !kernel_test_takes(tb)) continue;
        fixture_copy(&copy, &f, tb);
        check_attention(tb, &copy);
        fixture_free(&copy, true);
    }
    fixture_free(&f, false);
}

static void decodes(void **state)
{
    static const int32_t shapes[][3] = {{16, 512, 64}, {4, 64, 16}, {3, 32, 32}, {20, 256, 32}, {70, 48, 16}};
    for (int i = 0; i < 15; i++) {
        const struct latent_case c = {.num_seqs = 5,
                                      .query_lens = {1, 1, 1, 1, 1},
                                      .seq_lens = {1, 63, 200, 17, i % 3 ? 1100 : 500},
                                      .num_heads = shapes[i % 5][0],
                                      .rank = shapes[i % 5][1],
                                      .rope = shapes[i % 5][2],
                                      .block_size = block_sizes[i / 2 % 5],
                                      .dtype = types[i / 5],
                                      .cache_dtype = types[i / 5]};
        check_case(*state, &c);
    }
}

static struct latent_case mixed_case(int i)
{
    return (struct latent_case){.num_seqs = 9,
                                .query_lens = {1, 1, 1, 1, 1, 0, 33, 2, 20},
                                .seq_lens = {700, 90, 91, 92, 0, 0, 33, 530, 600},
                                .follows = {[2] = true, [3] = true},
                                .num_heads = i % 2 ? 16 : 5,
                                .rank = i % 2 ? 64 : 128,
                                .rope = 16 << i % 3,
                                .block_size = block_sizes[i % 5],
                                .dtype = types[i % 3],
                                .cache_dtype = types[i % 3]};
}

/* Decodes, a run, an entry of no context, whose result is 0, one without tokens, a prefill, and chunks. */
static void mixed_batches(void **state)
{
    for (int i = 0; i < 8; i++) {
        const struct latent_case c = mixed_case(i);
        check_case(*state, &c);
    }
}

/* The padding of a captured graph, behind decodes of long contexts. */
static void padding(void **state)
{
    for (int i = 0; i < 3; i++) {
        const struct latent_case c = {.num_seqs = 6,
                                      .query_lens = {1, 1, 0, 1, 0, 0},
                                      .seq_lens = {700, 1030, 0, 0, 0, 0},
                                      .num_heads = 3,
                                      .rank = 64,
                                      .rope = 16,
                                      .block_size = block_sizes[i],
                                      .dtype = types[i],
                                      .cache_dtype = types[i]};
        check_case(*state, &c);
    }
}

static void prefills(void **state)
{
    for (int i = 0; i < 6; i++) {
        const struct latent_case c = {.num_seqs = 3,
                                      .query_lens = {130, 64, 7},
                                      .seq_lens = {130, 100, 300},
                                      .num_heads = 4,
                                      .rank = i < 3 ? 512 : 64,
                                      .rope = i < 3 ? 64 : 16,
                                      .block_size = block_sizes[i % 5],
                                      .dtype = types[i % 3],
                                      .cache_dtype = types[i % 3]};
        check_case(*state, &c);
    }
}

/* The cache may have another type than activations. */
static void cache_types(void **state)
{
    static const enum dtype caches[] = {DTYPE_FP8_E4M3, DTYPE_BFLOAT16, DTYPE_FP8_E5M2, DTYPE_FLOAT16, DTYPE_FLOAT32};
    for (int i = 0; i < 10; i++) {
        struct latent_case c = mixed_case(i);
        c.cache_dtype = caches[i % 5];
        if (dtype_size(c.cache_dtype) == 1) c.kv_scale = i % 2 ? 0.125f : 0.37f;
        check_case(*state, &c);
    }
}

/* The sizes of models, which GPUs have kernels for: many heads, long contexts in parts, a whole run, an entry of no
 * context, padding, a chunk of a prompt. */
static void model_sizes(void **state)
{
    static const int32_t shapes[][3] = {{16, 512, 64}, {20, 512, 64}, {40, 256, 32}, {32, 256, 64}, {70, 512, 64}};
    static const enum dtype fp8[] = {DTYPE_FP8_E4M3, DTYPE_FP8_E5M2};
    for (int i = 0; i < 10; i++) {
        struct latent_case c = {.num_seqs = 13,
                                .query_lens = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 9},
                                .seq_lens = {2500, 40, 0, 901, 902, 903, 904, 905, 906, 907, 908, 0, 333},
                                .num_heads = shapes[i / 2][0],
                                .rank = shapes[i / 2][1],
                                .rope = shapes[i / 2][2],
                                .block_size = block_sizes[i % 5],
                                .dtype = types[1 + i / 3 % 2],
                                .loose = i % 3 == 0};
        for (int k = 4; k <= 10; k++) c.follows[k] = i % 4 > 1;
        c.cache_dtype = i % 2 ? fp8[i / 2 % 2] : c.dtype;
        c.kv_scale = i % 2 ? 0.37f : 0;
        check_case(*state, &c);
    }
}

/* Decodes around the sizes of tiles of rows and of chunks of tokens, with one context that many blocks share; some have
 * scores whose maxima grow. */
static void tile_sizes(void **state)
{
    static const int32_t heads[] = {16, 20, 32, 64, 128, 160};
    for (int i = 0; i < 12; i++) {
        const enum dtype dtype = types[1 + i % 2], fp8 = i == 5 ? DTYPE_FP8_E5M2 : DTYPE_FP8_E4M3;
        const bool is_long = heads[i % 6] == 20;
        const struct latent_case c = {.num_seqs = 8,
                                      .query_lens = {1, 1, 1, 1, 1, 1, 1, 1},
                                      .seq_lens = {1, 63, 64, 65, is_long ? 5000 : 200, 127, 129, is_long ? 576 : 31},
                                      .num_heads = heads[i % 6],
                                      .rank = i < 6 ? 512 : 256,
                                      .rope = i % 4 == 3 ? 32 : 64,
                                      .block_size = block_sizes[i % 5],
                                      .dtype = dtype,
                                      .cache_dtype = i % 4 == 1 ? fp8 : dtype,
                                      .kv_scale = i % 4 == 1 ? 0.37f : 0,
                                      .amplitude = i % 3 == 2 ? 30 : 1};
        check_case(*state, &c);
    }
}

/* A long context alone, whole tiles of runs, and chunks of a prompt behind a long one. */
static void long_contexts(void **state)
{
    for (int i = 0; i < 6; i++) {
        struct latent_case c = {.num_seqs = i % 3 == 1 ? 8 : 1,
                                .query_lens = {1, 1, 1, 1, 1, 1, 1, 1},
                                .seq_lens = {1801, 1802, 1803, 1804, 1805, 1806, 1807, 1808},
                                .num_heads = i % 3 == 1 ? 16 : 20,
                                .rank = i < 3 ? 512 : 256,
                                .rope = 64,
                                .block_size = block_sizes[i % 5],
                                .dtype = types[1 + i / 3],
                                .cache_dtype = i == 2 || i == 4 ? DTYPE_FP8_E4M3 : types[1 + i / 3],
                                .kv_scale = i == 2 || i == 4 ? 0.5f : 0};
        for (int k = 1; k < c.num_seqs; k++) c.follows[k] = true;
        if (i % 3 == 2) c.query_lens[0] = 70, c.seq_lens[0] = 1030;
        check_case(*state, &c);
    }
}

/* Prompts of models' sizes: of many tiles; and the end of a long one, which a GPU divides. */
static void model_prefills(void **state)
{
    for (int i = 0; i < 4; i++) {
        const struct latent_case c = {.num_seqs = 3,
                                      .query_lens = {1, i % 2 ? 3 : 75, i % 2 ? 5 : 20},
                                      .seq_lens = {70, i % 2 ? 1500 : 75, 90},
                                      .num_heads = i < 2 ? 16 : 20,
                                      .rank = i < 2 ? 512 : 256,
                                      .rope = i < 2 ? 64 : 32,
                                      .block_size = block_sizes[i],
                                      .dtype = types[1 + i / 2],
                                      .cache_dtype = i == 2 ? DTYPE_FP8_E4M3 : types[1 + i / 2],
                                      .kv_scale = i == 2 ? 0.37f : 0};
        check_case(*state, &c);
    }
}

/* Scores of hundreds, of which the largest come late, and of which a partition may have none that counts. */
static void survives_large_scores(void **state)
{
    for (int i = 0; i < 3; i++) {
        struct latent_case c = mixed_case(i);
        c.amplitude = 100;
        c.dtype = c.cache_dtype = DTYPE_FLOAT32;
        check_case(*state, &c);
    }
}

/* ---- latent_cache ---- */

static void check_cache(const struct test_backend *tb, int32_t rank, int32_t rope, int32_t block_size, enum dtype dtype,
                        enum dtype cache_dtype)
{
    enum { TOKENS = 9, BLOCKS = 4 };
    static const int64_t places[TOKENS] = {17, -1, 0, 3, 20, 5, -1, 31, 8};
    /* A GPU multiplies by the inverse, which is exact for this one. */
    const float scales[] = {tb->b->discrete ? 0.25f : 0.3f, NAN}, scale = dtype_size(cache_dtype) == 1 ? scales[0] : 1;
    const int64_t size = rank + rope, block_stride = block_size * size + 32;
    const int64_t latent_stride = rank + 16, rotated_stride = rope + 48;
    struct tensor latent = tensor_random(tb->b, dtype, TOKENS * latent_stride, 3, tb->random);
    struct tensor rotated = tensor_random(tb->b, dtype, TOKENS * rotated_stride, 3, tb->random);
    struct tensor cache = tensor_poison(tb->b, cache_dtype, BLOCKS * block_stride);
    struct tensor expected = tensor_poison(tb->b, cache_dtype, BLOCKS * block_stride);
    struct tensor slots = tensor_bytes(tb->b, places, sizeof places);
    struct tensor scales_on = tensor_bytes(tb->b, scales, sizeof scales);
    for (int t = 0; t < TOKENS; t++)
        for (int64_t d = 0; d < size && places[t] >= 0; d++) {
            const int64_t index = places[t] / block_size * block_stride + places[t] % block_size * size + d;
            const double x = d < rank ? tensor_get(&latent, t * latent_stride + d)
                                      : tensor_get(&rotated, t * rotated_stride + d - rank);
            tensor_set(&expected, index, (double)((float)x / scale));
        }
    const struct latent_cache_args args = {.latent = latent.data,
                                           .rotated = rotated.data,
                                           .latent_stride = latent_stride,
                                           .rotated_stride = rotated_stride,
                                           .cache = cache.data,
                                           .slot_mapping = slots.data,
                                           .num_tokens = TOKENS,
                                           .rank = rank,
                                           .rope = rope,
                                           .block_size = block_size,
                                           .block_stride = block_stride,
                                           .dtype = dtype,
                                           .cache_dtype = cache_dtype,
                                           .kv_scales = scales_on.data};
    tb->b->latent_cache(tb->b, &args);
    tensor_download(&cache);
    if (memcmp(cache.host, expected.host, (size_t)cache.bytes) != 0)
        fail_msg("%s: latent_cache: %d + %d, %s to %s: another cache than expected", tb->name, rank, rope,
                 dtype_name(dtype), dtype_name(cache_dtype));
    tensor_free(&latent), tensor_free(&rotated), tensor_free(&cache), tensor_free(&expected);
    tensor_free(&slots), tensor_free(&scales_on);
}

static void caches(void **state)
{
    struct kernel_test *test = *state;
    for (int b = 0; b < test->num_backends; b++)
        for (int i = 0; i < 30; i++) {
            struct test_backend *tb = &test->backends[b];
            const enum dtype dtype = types[i % 3], cache = i / 3 % 5 < 3 ? types[i / 3 % 5] : DTYPE_FP8_E4M3;
            if (!tb->b->latent_cache || !kernel_test_takes(tb)) continue;
            check_cache(tb, i % 2 ? 512 : 48, i % 2 ? 64 : 16, i % 4 ? 16 : 8, dtype, cache);
        }
}

/* ---- latent_inputs ---- */

struct inputs_case {
    int32_t num_tokens, rank, rope, q_rank;
    bool rotates, interleaved;
    enum dtype dtype, cache_dtype;
};

/* What the operation reads, and what it writes: a cache and q. */
struct inputs_tensors {
    struct tensor x, gain, q_gain, cos_sin, positions, slots, scales, cache, q;
};

static struct inputs_tensors inputs_open(const struct test_backend *tb, const struct inputs_case *c)
{
    enum { BLOCKS = 8, SLOTS = 16, ANGLES = 50 };
    static const float scales[] = {0.25f, NAN};
    const int64_t n = c->num_tokens, size = c->rank + c->rope, stride = c->q_rank + size;
    int64_t slots[BLOCKS * SLOTS];
    int32_t positions[BLOCKS * SLOTS];
    for (int64_t t = 0; t < n; t++) {
        slots[t] = t % 5 == 3 ? -1 : t * 7 % (BLOCKS * SLOTS); /* distinct */
        positions[t] = random_between(tb->random, 0, ANGLES - 1);
    }
    return (struct inputs_tensors){.x = tensor_random(tb->b, c->dtype, n * stride, 3, tb->random),
                                   .gain = tensor_random(tb->b, c->dtype, c->rank, 1, tb->random),
                                   .q_gain = tensor_random(tb->b, DTYPE_FLOAT32, c->q_rank + 1, 1, tb->random),
                                   .cos_sin = tensor_random(tb->b, DTYPE_FLOAT32, ANGLES * c->rope, 1, tb->random),
                                   .positions = tensor_bytes(tb->b, positions, sizeof *positions * (size_t)n),
                                   .slots = tensor_bytes(tb->b, slots, sizeof *slots * (size_t)n),
                                   .scales = tensor_bytes(tb->b, scales, sizeof scales),
                                   .cache = tensor_poison(tb->b, c->cache_dtype, BLOCKS * SLOTS * size),
                                   .q = tensor_poison(tb->b, c->dtype, n * c->q_rank + 1)};
}

static void inputs_free(struct inputs_tensors *t)
{
    tensor_free(&t->x), tensor_free(&t->gain), tensor_free(&t->q_gain), tensor_free(&t->cos_sin);
    tensor_free(&t->positions), tensor_free(&t->slots), tensor_free(&t->scales), tensor_free(&t->cache);
    tensor_free(&t->q);
}

/* x of a token is what q is made of, the latent and the key. */
static struct latent_inputs_args inputs_args(const struct inputs_case *c, const struct inputs_tensors *t)
{
    const int64_t element = dtype_size(c->dtype), stride = c->q_rank + c->rank + c->rope;
    char *latent = (char *)t->x.data + c->q_rank * element;
    return (struct latent_inputs_args){.cache = {.latent = latent,
                                                 .rotated = latent + c->rank * element,
                                                 .latent_stride = stride,
                                                 .rotated_stride = stride,
                                                 .cache = t->cache.data,
                                                 .slot_mapping = t->slots.data,
                                                 .num_tokens = c->num_tokens,
                                                 .rank = c->rank,
                                                 .rope = c->rope,
                                                 .block_size = 16,
                                                 .block_stride = 16 * (int64_t)(c->rank + c->rope),
                                                 .dtype = c->dtype,
                                                 .cache_dtype = c->cache_dtype,
                                                 .kv_scales = t->scales.data},
                                       .norm = {.gain = t->gain.data, .gain_dtype = c->dtype, .eps = 1e-5f},
                                       .cos_sin = c->rotates ? t->cos_sin.data : NULL,
                                       .positions = t->positions.data,
                                       .interleaved = c->interleaved,
                                       .q = t->q.data,
                                       .q_in = t->x.data,
                                       .q_stride = stride,
                                       .q_rank = c->q_rank,
                                       .q_norm = {.gain = t->q_gain.data, .gain_dtype = DTYPE_FLOAT32, .eps = 1e-6f}};
}

/* The same by single operations, in place. */
static void run_single_inputs(struct backend *b, const struct latent_inputs_args *args)
{
    const struct latent_cache_args *c = &args->cache;
    const struct rms_norm_args latent = {(void *)c->latent, c->latent,     c->latent_stride, c->latent_stride, NULL,
                                         args->norm,        c->num_tokens, c->rank,          c->dtype};
    const struct rms_norm_args q = {args->q,      args->q_in,    args->q_rank, args->q_stride, NULL,
                                    args->q_norm, c->num_tokens, args->q_rank, c->dtype};
    const struct rotary_args rotary = {.query = (void *)c->rotated,
                                       .key = (void *)c->rotated,
                                       .query_stride = c->rotated_stride,
                                       .key_stride = c->rotated_stride,
                                       .positions = args->positions,
                                       .cos_sin = args->cos_sin,
                                       .num_tokens = c->num_tokens,
                                       .num_heads = 1,
                                       .head_size = c->rope,
                                       .rotary_dim = c->rope,
                                       .interleaved = args->interleaved,
                                       .dtype = c->dtype};
    b->rms_norm(b, &latent);
    if (args->q_rank > 0) b->rms_norm(b, &q);
    if (args->cos_sin) b->rotary_embedding(b, &rotary);
    b->latent_cache(b, c);
}

/* Sums of squares may be rounded otherwise, and so an element may be the next number of its type. */
static void compare_inputs(const struct test_backend *tb, const char *what, const struct tensor *fused,
                           const struct tensor *single, enum dtype dtype)
{
    const double unit = dtype == DTYPE_FLOAT32    ? 1e-6
                        : dtype == DTYPE_FLOAT16  ? 0x1p-10
                        : dtype == DTYPE_BFLOAT16 ? 0x1p-7
                                                  : 0x1p-3;
    for (int64_t i = 0; i < single->count; i++) {
        const double found = tensor_get(fused, i), expected = tensor_get(single, i);
        const bool same = isnan(expected) ? isnan(found) : fabs(found - expected) <= unit * fabs(expected) + 0x1p-9;
        if (!same) fail_msg("%s: %s: element %lld is %g instead of %g", tb->name, what, (long long)i, found, expected);
    }
}

static void check_inputs(struct test_backend *tb, const struct inputs_case *c)
{
    char what[200];
    struct inputs_tensors t = inputs_open(tb, c);
    struct tensor cache = tensor_poison(tb->b, c->cache_dtype, t.cache.count);
    struct tensor q = tensor_poison(tb->b, c->dtype, t.q.count);
    struct latent_inputs_args args = inputs_args(c, &t);
    snprintf(what, sizeof what, "latent_inputs: %d tokens, %d + %d, q %d, %s to %s%s%s", c->num_tokens, c->rank,
             c->rope, c->q_rank, dtype_name(c->dtype), dtype_name(c->cache_dtype), c->rotates ? ", rotated" : "",
             c->interleaved ? ", interleaved" : "");
    if (!tb->b->latent_inputs(tb->b, &args)) fail_msg("%s: %s: not taken", tb->name, what);
    args.cache.cache = cache.data, args.q = q.data;
    run_single_inputs(tb->b, &args);
    tensor_download(&t.cache), tensor_download(&cache), tensor_download(&t.q), tensor_download(&q);
    compare_inputs(tb, what, &t.cache, &cache, c->cache_dtype);
    compare_inputs(tb, what, &t.q, &q, c->dtype);
    tensor_free(&cache), tensor_free(&q);
    inputs_free(&t);
}

static void inputs(void **state)
{
    struct kernel_test *test = *state;
    static const int32_t tokens[] = {1, 2, 7, 33, 128};
    for (int b = 0; b < test->num_backends; b++)
        for (int i = 0; i < 60; i++) {
            struct test_backend *tb = &test->backends[b];
            const struct inputs_case c = {.num_tokens = tokens[i % 5],
                                          .rank = i % 2 ? 512 : 48,
                                          .rope = i % 2 ? 64 : 16,
                                          .q_rank = i % 4 == 0   ? 0
                                                    : i % 4 == 1 ? 1536
                                                    : i % 4 == 2 ? 64
                                                                 : 768,
                                          .rotates = i % 7 != 0,
                                          .interleaved = i % 3 == 0,
                                          .dtype = types[i / 2 % 3],
                                          .cache_dtype = i % 5 == 4 ? DTYPE_FP8_E4M3 : types[i / 2 % 3]};
            if (tb->b->latent_inputs && kernel_test_takes(tb)) check_inputs(tb, &c);
        }
}

/* ---- heads_linear ---- */

struct heads_case {
    int32_t num_tokens, num_heads, in_features, out_features;
    bool transposed, head_major; /* head_major: out and x are [num_heads, num_tokens] */
    int32_t num_copied;          /* at most 16; not with head_major */
    bool rotates, interleaved;   /* the copies */
    enum dtype dtype, weight_dtype;
};

static void expect_heads(const struct heads_case *c, double *out, const struct heads_linear_args *args,
                         const struct tensor *x, const struct tensor *weight)
{
    double *in = tensor_doubles(x), *w = tensor_doubles(weight);
    for (int64_t t = 0; t < c->num_tokens; t++)
        for (int64_t h = 0; h < c->num_heads; h++)
            for (int64_t o = 0; o < c->out_features; o++) {
                double sum = 0;
                for (int64_t i = 0; i < c->in_features; i++)
                    sum +=
                        in[t * args->x_stride + h * args->x_head_stride + i] *
                        w[h * args->head_stride + (c->transposed ? i * c->out_features + o : o * c->in_features + i)];
                out[(t * c->num_heads + h) * c->out_features + o] = sum;
            }
    free(in), free(w);
}

/* Removes what lies between the rows of heads, copies of x and NaN: [num_tokens, num_heads, out_features]. */
static void gather_heads(const struct heads_linear_args *args, struct tensor *out, const struct tensor *x)
{
    const int64_t element = dtype_size(args->dtype);
    const size_t bytes = (size_t)(args->out_features * element), copied = (size_t)(args->num_copied * element);
    uint8_t *rows = malloc(bytes * (size_t)args->num_tokens * (size_t)args->num_heads), *next = rows;
    for (int64_t t = 0; t < args->num_tokens; t++)
        for (int64_t h = 0; h < args->num_heads; h++, next += bytes) {
            uint8_t *row = out->host + (t * args->out_stride + h * args->out_head_stride) * element;
            const uint8_t *from =
                x->host + (t * args->x_stride + h * args->x_head_stride + args->in_features) * element;
            memcpy(next, row, bytes);
            if (copied > 0) assert_memory_equal(row + bytes, from, copied);
            memset(row, 0xff, bytes + copied);
        }
    for (int64_t i = 0; i < out->bytes; i++) assert_int_equal(out->host[i], 0xff);
    memcpy(out->host, rows, (size_t)(next - rows));
    free(rows);
}

/* x with what is copied rotated, as rotary_embedding does. */
static struct tensor rotate_rest(struct backend *b, const struct heads_linear_args *args, const struct tensor *x)
{
    const int64_t element = dtype_size(args->dtype);
    struct tensor out = tensor_bytes(b, x->host, (size_t)x->bytes);
    out.dtype = x->dtype, out.count = x->count;
    const struct rotary_args rotary = {.query = (char *)out.data + args->in_features * element,
                                       .key = out.data,
                                       .query_stride = args->x_stride,
                                       .positions = args->positions,
                                       .cos_sin = args->cos_sin,
                                       .num_tokens = args->num_tokens,
                                       .num_heads = args->num_heads,
                                       .head_size = (int32_t)args->x_head_stride,
                                       .rotary_dim = args->num_copied,
                                       .interleaved = args->interleaved,
                                       .dtype = args->dtype};
    b->rotary_embedding(b, &rotary);
    tensor_download(&out);
    return out;
}

static void check_heads(const struct test_backend *tb, const struct heads_case *c)
{
    char what[160];
    enum { ANGLES = 40 };
    int32_t positions[300];
    struct heads_linear_args args = {.weight_dtype = c->weight_dtype,
                                     .head_stride = (int64_t)c->in_features * c->out_features + 96,
                                     .transposed = c->transposed,
                                     .num_tokens = c->num_tokens,
                                     .num_heads = c->num_heads,
                                     .in_features = c->in_features,
                                     .out_features = c->out_features,
                                     .dtype = c->dtype,
                                     .num_copied = c->num_copied};
    args.x_head_stride = c->in_features + 16, args.x_stride = c->num_heads * args.x_head_stride;
    args.out_head_stride = c->out_features + 32, args.out_stride = c->num_heads * args.out_head_stride + 16;
    if (c->head_major) {
        args.x_stride = c->in_features, args.x_head_stride = (int64_t)c->num_tokens * c->in_features;
        args.out_stride = c->out_features, args.out_head_stride = (int64_t)c->num_tokens * c->out_features;
    }
    const int64_t count = (int64_t)c->num_tokens * c->num_heads * c->out_features;
    const int64_t out_size = c->head_major ? count : c->num_tokens * args.out_stride;
    const int64_t x_size = (int64_t)c->num_tokens * c->num_heads * (c->in_features + 16);
    struct tensor x = tensor_random(tb->b, c->dtype, x_size, 1, tb->random);
    struct tensor weight = tensor_random(tb->b, c->weight_dtype, c->num_heads * args.head_stride, 1, tb->random);
    struct tensor out = tensor_poison(tb->b, c->dtype, out_size);
    double *expected = malloc(sizeof(double) * (size_t)count);
    for (int32_t t = 0; t < c->num_tokens; t++) positions[t] = random_between(tb->random, 0, ANGLES - 1);
    struct tensor angles = tensor_random(tb->b, DTYPE_FLOAT32, ANGLES * (c->num_copied + 1), 1, tb->random);
    struct tensor places = tensor_bytes(tb->b, positions, sizeof *positions * (size_t)c->num_tokens);
    args.out = out.data, args.x = x.data, args.weight = weight.data;
    args.cos_sin = c->rotates ? angles.data : NULL;
    args.positions = places.data;
    args.interleaved = c->interleaved;
    expect_heads(c, expected, &args, &x, &weight);
    tb->b->heads_linear(tb->b, &args);
    tensor_download(&out);
    struct tensor copied = c->rotates ? rotate_rest(tb->b, &args, &x) : x;
    gather_heads(&args, &out, &copied);
    snprintf(what, sizeof what, "heads_linear: %d tokens, %d heads, %d to %d%s, %s, weights %s", c->num_tokens,
             c->num_heads, c->in_features, c->out_features, c->transposed ? " transposed" : "", dtype_name(c->dtype),
             dtype_name(c->weight_dtype));
    check_close(tb, what, &out, expected, count, c->dtype);
    free(expected);
    if (c->rotates) tensor_free(&copied);
    tensor_free(&x), tensor_free(&weight), tensor_free(&out), tensor_free(&angles), tensor_free(&places);
}

static void heads_linears(void **state)
{
    struct kernel_test *test = *state;
    static const int32_t shapes[][2] = {{128, 512}, {512, 128}, {16, 48}, {48, 16}, {192, 80}, {80, 192}};
    static const int32_t tokens[] = {1, 3, 8, 33, 70};
    for (int b = 0; b < test->num_backends; b++)
        for (int i = 0; i < 66; i++) {
            struct test_backend *tb = &test->backends[b];
            const struct heads_case c = {.num_tokens = i < 60 ? tokens[i % 5] : 300,
                                         .num_heads = i % 4 + 1,
                                         .in_features = shapes[i % 6][0],
                                         .out_features = shapes[i % 6][1],
                                         .transposed = i / 2 % 2 == 0,
                                         .head_major = i / 3 % 4 == 0,
                                         .num_copied = i / 3 % 4 == 2 ? 16 : 0,
                                         .rotates = i / 3 % 4 == 2 && i % 3 > 0,
                                         .interleaved = i % 3 == 1,
                                         .dtype = types[i / 5 % 3],
                                         .weight_dtype = tb->b->discrete ? types[i / 5 % 3] : types[i / 7 % 3]};
            if (tb->b->heads_linear && kernel_test_takes(tb)) check_heads(tb, &c);
        }
}

/* ---- the absorbed form ---- */

enum { TOKENS = 40, HEADS = 3, RANK = 64, ROPE = 16, NOPE = 32, V_SIZE = 48, HEAD_ROWS = NOPE + V_SIZE };

/* What a test of the absorbed form has on a device. A head's matrix is [W_UK; W_UV]. */
struct absorbed {
    struct tensor q_nope, q_rope, latent, rotated, weight; /* q_rope is [TOKENS, HEADS, ROPE] */
};

/* expanded [TOKENS, HEADS, HEAD_ROWS]: W_UK c and W_UV c of each token and head. */
static double *expand(const struct absorbed *a)
{
    double *out = malloc(sizeof(double) * TOKENS * HEADS * HEAD_ROWS);
    double *weight = tensor_doubles(&a->weight), *latent = tensor_doubles(&a->latent);
    for (int t = 0; t < TOKENS; t++)
        for (int row = 0; row < HEADS * HEAD_ROWS; row++) {
            double sum = 0;
            for (int i = 0; i < RANK; i++) sum += weight[row * RANK + i] * latent[t * RANK + i];
            out[t * HEADS * HEAD_ROWS + row] = sum;
        }
    free(weight), free(latent);
    return out;
}

/* Attention with K = [W_UK c, r] and V = W_UV c, of head h of token t. */
static void expect_expanded(double *out, const struct absorbed *a, const double *expanded, int t, int h, double scale)
{
    double scores[TOKENS], sum = 0;
    memset(out, 0, sizeof *out * V_SIZE);
    for (int s = 0; s <= t; s++) {
        scores[s] = 0;
        for (int i = 0; i < NOPE; i++)
            scores[s] += expanded[(s * HEADS + h) * HEAD_ROWS + i] * tensor_get(&a->q_nope, (t * HEADS + h) * NOPE + i);
        for (int i = 0; i < ROPE; i++)
            scores[s] += tensor_get(&a->q_rope, (t * HEADS + h) * ROPE + i) * tensor_get(&a->rotated, s * ROPE + i);
        scores[s] = exp(scale * scores[s]);
        sum += scores[s];
    }
    for (int s = 0; s <= t; s++)
        for (int i = 0; i < V_SIZE; i++) out[i] += scores[s] / sum * expanded[(s * HEADS + h) * HEAD_ROWS + NOPE + i];
}

/* Runs the operations; out [TOKENS, HEADS, V_SIZE]. */
static void run_absorbed(struct test_backend *tb, const struct absorbed *a, struct tensor *out, float scale)
{
    const enum dtype dtype = out->dtype;
    const int64_t size = RANK + ROPE;
    const struct latent_case c = {.num_seqs = 1,
                                  .query_lens = {TOKENS},
                                  .seq_lens = {TOKENS},
                                  .num_heads = HEADS,
                                  .rank = RANK,
                                  .rope = ROPE,
                                  .block_size = 16,
                                  .dtype = dtype,
                                  .cache_dtype = dtype};
    struct fixture f;
    int64_t places[TOKENS];
    fixture_make(&f, &c, tb);
    workspace_for(tb, &f);
    for (int t = 0; t < TOKENS; t++) places[t] = (int64_t)((const int32_t *)f.tables.host)[t / 16] * 16 + t % 16;
    struct tensor slots = tensor_bytes(tb->b, places, sizeof places);
    struct tensor mixed = tensor_poison(tb->b, dtype, (int64_t)TOKENS * HEADS * RANK);
    tb->b->latent_cache(tb->b, &(struct latent_cache_args){.latent = a->latent.data,
                                                           .rotated = a->rotated.data,
                                                           .latent_stride = RANK,
                                                           .rotated_stride = ROPE,
                                                           .cache = f.cache.data,
                                                           .slot_mapping = slots.data,
                                                           .num_tokens = TOKENS,
                                                           .rank = RANK,
                                                           .rope = ROPE,
                                                           .block_size = 16,
                                                           .block_stride = f.block_stride,
                                                           .dtype = dtype,
                                                           .cache_dtype = dtype});
    for (int64_t row = 0; row < (int64_t)TOKENS * HEADS; row++)
        for (int64_t i = 0; i < ROPE; i++)
            tensor_set(&f.query, row * size + RANK + i, tensor_get(&a->q_rope, row * ROPE + i));
    tensor_upload(&f.query);
    struct heads_linear_args linear = {.out = f.query.data,
                                       .x = a->q_nope.data,
                                       .out_stride = HEADS * size,
                                       .out_head_stride = size,
                                       .x_stride = HEADS * NOPE,
                                       .x_head_stride = NOPE,
                                       .weight = a->weight.data,
                                       .weight_dtype = dtype,
                                       .head_stride = HEAD_ROWS * RANK,
                                       .transposed = true,
                                       .num_tokens = TOKENS,
                                       .num_heads = HEADS,
                                       .in_features = NOPE,
                                       .out_features = RANK,
                                       .dtype = dtype};
    tb->b->heads_linear(tb->b, &linear);
    struct latent_attention_args attention = arguments(&f, mixed.data);
    attention.scale = scale;
    tb->b->latent_attention(tb->b, &attention);
    linear.out = out->data, linear.out_stride = HEADS * V_SIZE, linear.out_head_stride = V_SIZE;
    linear.x = mixed.data, linear.x_stride = HEADS * RANK, linear.x_head_stride = RANK;
    linear.weight = (const uint8_t *)a->weight.data + NOPE * RANK * dtype_size(dtype), linear.transposed = false;
    linear.in_features = RANK, linear.out_features = V_SIZE;
    tb->b->heads_linear(tb->b, &linear);
    tensor_download(out);
    tensor_free(&slots), tensor_free(&mixed);
    fixture_free(&f, false);
}

static void absorbed_form(void **state)
{
    struct kernel_test *test = *state;
    const float scale = 0.1f;
    for (int b = 0; b < test->num_backends; b++)
        for (int i = 0; i < 3; i++) {
            struct test_backend *tb = &test->backends[b];
            struct backend *on = tb->b;
            const enum dtype dtype = types[i];
            double expected[TOKENS * HEADS * V_SIZE];
            if (!on->latent_attention || !on->latent_cache || !on->heads_linear || !kernel_test_takes(tb)) continue;
            struct absorbed a = {.q_nope = tensor_random(on, dtype, TOKENS * HEADS * NOPE, 1, tb->random),
                                 .q_rope = tensor_random(on, dtype, TOKENS * HEADS * ROPE, 1, tb->random),
                                 .latent = tensor_random(on, dtype, TOKENS * RANK, 1, tb->random),
                                 .rotated = tensor_random(on, dtype, TOKENS * ROPE, 1, tb->random),
                                 .weight = tensor_random(on, dtype, HEADS * HEAD_ROWS * RANK, 1, tb->random)};
            struct tensor out = tensor_poison(on, dtype, TOKENS * HEADS * V_SIZE);
            double *expanded = expand(&a);
            for (int t = 0; t < TOKENS; t++)
                for (int h = 0; h < HEADS; h++)
                    expect_expanded(expected + (t * HEADS + h) * V_SIZE, &a, expanded, t, h, (double)scale);
            free(expanded);
            run_absorbed(tb, &a, &out, scale);
            check_close(tb, "the absorbed form", &out, expected, out.count, dtype);
            tensor_free(&a.q_nope), tensor_free(&a.q_rope), tensor_free(&a.latent), tensor_free(&a.rotated);
            tensor_free(&a.weight), tensor_free(&out);
        }
}

/* However many threads share the work. */
static void threads_do_not_matter(void **state)
{
    struct kernel_test *test = *state;
    struct fixture f;
    const struct latent_case c = mixed_case(0);
    fixture_make(&f, &c, &test->backends[0]);
    struct tensor out = tensor_poison(test->backends[0].b, c.dtype, (int64_t)f.num_tokens * c.num_heads * c.rank);
    uint8_t *first = malloc((size_t)out.bytes);
    for (int threads = 1; threads <= 3; threads++) {
        struct backend *b;
        struct error err;
        assert_int_equal(backend_open("cpu", threads, &b, &err), STATUS_OK);
        const struct workspace_query query = workspace_query_of(&f);
        struct tensor workspace = tensor_poison(b, DTYPE_FP8_E4M3, b->workspace_bytes(b, &query));
        b->workspace_set(b, workspace.data, workspace.bytes);
        const struct latent_attention_args args = arguments(&f, out.data);
        b->latent_attention(b, &args);
        if (threads == 1) memcpy(first, out.data, (size_t)out.bytes);
        assert_memory_equal(first, out.data, (size_t)out.bytes);
        tensor_free(&workspace);
        b->destroy(b);
    }
    free(first);
    tensor_free(&out);
    fixture_free(&f, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decodes),       cmocka_unit_test(mixed_batches),  cmocka_unit_test(padding),
        cmocka_unit_test(prefills),      cmocka_unit_test(cache_types),    cmocka_unit_test(survives_large_scores),
        cmocka_unit_test(model_sizes),   cmocka_unit_test(model_prefills), cmocka_unit_test(tile_sizes),
        cmocka_unit_test(long_contexts), cmocka_unit_test(caches),         cmocka_unit_test(inputs),
        cmocka_unit_test(heads_linears), cmocka_unit_test(absorbed_form),  cmocka_unit_test(threads_do_not_matter),
    };
    cmocka_set_test_filter(getenv("QUIRE_TEST_FILTER"));
    return cmocka_run_group_tests(tests, kernel_test_setup, kernel_test_teardown);
}
