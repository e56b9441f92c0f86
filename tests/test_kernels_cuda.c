/* What only the CUDA backend can get wrong: the kernels' vectorized paths at the shapes of real models, against the CPU
 * backend; caches of more than 2^31 elements; graphs; failures. Skipped where there is no GPU. */
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

static const enum dtype types[] = {DTYPE_FLOAT32, DTYPE_FLOAT16, DTYPE_BFLOAT16};

static struct tensor copy_of(struct backend *b, const struct tensor *t)
{
    struct tensor copy = tensor_bytes(b, t->host, t->bytes);
    copy.dtype = t->dtype;
    copy.count = t->count;
    return copy;
}

static void use_workspace_of(struct test_backend *gpu, int32_t max_num_tokens, int64_t in_features,
                             int64_t out_features)
{
    const struct workspace_query query = {.max_num_tokens = max_num_tokens,
                                          .max_num_seqs = 8,
                                          .max_model_len = 64,
                                          .num_heads = 8,
                                          .head_size = 64,
                                          .block_size = 16,
                                          .max_in_features = in_features,
                                          .vocab_size = out_features};
    use_workspace(gpu, &query);
}

static void synchronize(struct backend *b)
{
    struct error err;
    if (b->stream_synchronize(b, NULL, &err) != STATUS_OK) fail_msg("%s", err.text);
}

/* Compares the same tensor of both backends. */
static void check_same(const struct test_backend *gpu, const char *what, struct tensor *out, struct tensor *expected)
{
    tensor_download(out), tensor_download(expected);
    double *values = tensor_doubles(expected);
    check_close(gpu, what, out, values, out->count, out->dtype);
    free(values);
}

/* Sizes that registers hold and not, and numbers of tokens that are fewer and more than a GPU's multiprocessors. */
static void norms_of_real_sizes(void **state)
{
    struct kernel_test *test = *state;
    struct test_backend *gpu = kernel_test_gpu(test);
    struct backend *g = gpu->b, *c = test->backends[0].b;
    static const int32_t sizes[] = {32, 2048, 4096, 8192, 8200, 12288, 16384};
    for (int i = 0; i < 7 * 3 * 3 * 2; i++) {
        const int32_t size = sizes[i / 18], tokens = i % 2 ? 1 : i % 9 ? 5 : 200;
        const enum norm_type type = i / 9 % 2 ? NORM_LAYER : NORM_RMS;
        const enum dtype dtype = types[i / 3 % 3], gain_dtype = types[i % 3];
        struct tensor x = tensor_random(c, dtype, (int64_t)tokens * size, 2, &test->random), x_on = copy_of(g, &x);
        struct tensor r = tensor_random(c, dtype, (int64_t)tokens * size, 2, &test->random), r_on = copy_of(g, &r);
        struct tensor gain = tensor_random(c, gain_dtype, size, 2, &test->random), gain_on = copy_of(g, &gain);
        struct tensor out = tensor_poison(c, dtype, x.count), out_on = tensor_poison(g, dtype, x.count);
        struct rms_norm_args norm = rms_norm_of(&out, &x, &gain), norm_on = rms_norm_of(&out_on, &x_on, &gain_on);
        norm.norm.type = norm_on.norm.type = type;
        c->rms_norm(c, &norm);
        g->rms_norm(g, &norm_on);
        check_same(gpu, "rms_norm", &out_on, &out);
        struct fused_add_rms_norm_args add = fused_add_rms_norm_of(&x, &x, &r, &gain),
                                       add_on = fused_add_rms_norm_of(&x_on, &x_on, &r_on, &gain_on);
        add.multiplier = add_on.multiplier = i % 2 ? 1 : 0.22f;
        add.norm.type = add_on.norm.type = type;
        c->fused_add_rms_norm(c, &add);
        g->fused_add_rms_norm(g, &add_on);
        check_same(gpu, "fused_add_rms_norm", &x_on, &x);
        check_same(gpu, "fused_add_rms_norm's residual", &r_on, &r);
        tensor_free(&x), tensor_free(&x_on), tensor_free(&r), tensor_free(&r_on), tensor_free(&gain);
        tensor_free(&gain_on), tensor_free(&out), tensor_free(&out_on);
    }
}

/* The sizes of Gemma 2's and OLMo 2's layers, and others: a post norm, with a norm after the addition and without. */
static void post_norms_of_real_sizes(void **state)
{
    struct kernel_test *test = *state;
    struct test_backend *gpu = kernel_test_gpu(test);
    struct backend *g = gpu->b, *c = test->backends[0].b;
    static const int32_t sizes[] = {1152, 3584, 4096, 4099, 20000};
    for (int i = 0; i < 5 * 3 * 4; i++) {
        const int32_t size = sizes[i / 12], tokens = i % 2 ? 1 : 200;
        const enum dtype dtype = types[i % 3], gain_dtype = i % 4 ? dtype : DTYPE_FLOAT32;
        struct tensor x = tensor_random(c, dtype, (int64_t)tokens * size, 40, &test->random), x_on = copy_of(g, &x);
        struct tensor r = tensor_random(c, dtype, (int64_t)tokens * size, 2, &test->random), r_on = copy_of(g, &r);
        struct tensor gain = tensor_random(c, gain_dtype, size, 2, &test->random), gain_on = copy_of(g, &gain);
        struct tensor post = tensor_random(c, dtype, size, 2, &test->random), post_on = copy_of(g, &post);
        struct tensor out = tensor_poison(c, dtype, x.count), out_on = tensor_poison(g, dtype, x.count);
        const struct norm_params post_norm = norm_of(&post), post_norm_on = norm_of(&post_on);
        struct fused_add_rms_norm_args add = fused_add_rms_norm_of(&out, &x, &r, &gain),
                                       add_on = fused_add_rms_norm_of(&out_on, &x_on, &r_on, &gain_on);
        add.post_norm = &post_norm, add_on.post_norm = &post_norm_on;
        if (i / 3 % 2) add.out = add_on.out = NULL;
        c->fused_add_rms_norm(c, &add);
        g->fused_add_rms_norm(g, &add_on);
        check_same(gpu, "the residual after a post norm", &r_on, &r);
        if (add.out) check_same(gpu, "fused_add_rms_norm with a post norm", &out_on, &out);
        tensor_free(&x), tensor_free(&x_on), tensor_free(&r), tensor_free(&r_on), tensor_free(&gain);
        tensor_free(&gain_on), tensor_free(&post), tensor_free(&post_on), tensor_free(&out), tensor_free(&out_on);
    }
}

/* Norms over a part of a fused QKV row, in place: the rest of the row stays as it is. The last two strides do
 * not allow 16-byte reads. */
static void norms_inside_wider_rows(void **state)
{
    struct kernel_test *test = *state;
    struct test_backend *gpu = kernel_test_gpu(test);
    struct backend *g = gpu->b, *c = test->backends[0].b;
    static const int32_t sizes[][3] = {
        {4096, 1024, 6144}, {1024, 4096, 6144}, {2048, 8, 2072}, {512, 3, 1027}, {96, 7, 109}};
    enum { TOKENS = 5 };
    for (int i = 0; i < 5 * 3 * 2; i++) {
        const int32_t size = sizes[i / 6][0], first = sizes[i / 6][1], stride = sizes[i / 6][2];
        const enum dtype dtype = types[i % 3], gain_dtype = i / 3 % 2 ? DTYPE_FLOAT32 : dtype;
        struct tensor x = tensor_random(c, dtype, TOKENS * stride, 2, &test->random), x_on = copy_of(g, &x);
        struct tensor gain = tensor_random(c, gain_dtype, size, 2, &test->random), gain_on = copy_of(g, &gain);
        struct rms_norm_args args = rms_norm_of(&x, &x, &gain), on = rms_norm_of(&x_on, &x_on, &gain_on);
        args.num_tokens = on.num_tokens = TOKENS;
        args.x_stride = args.out_stride = on.x_stride = on.out_stride = stride;
        args.out = (uint8_t *)x.data + first * dtype_size(dtype), args.x = args.out;
        on.out = (uint8_t *)x_on.data + first * dtype_size(dtype), on.x = on.out;
        uint8_t *before = malloc((size_t)x.bytes);
        memcpy(before, x.host, (size_t)x.bytes);
        c->rms_norm(c, &args);
        g->rms_norm(g, &on);
        check_same(gpu, "rms_norm inside a wider row", &x_on, &x);
        for (int64_t at = 0; at < x.count; at++)
            if (at % stride < first || at % stride >= first + size)
                assert_memory_equal(x_on.host + at * dtype_size(dtype), before + at * dtype_size(dtype),
                                    (size_t)dtype_size(dtype));
        free(before);
        tensor_free(&x), tensor_free(&x_on), tensor_free(&gain), tensor_free(&gain_on);
    }
}

/* How rotary_embedding is called on rows of query, key and value. */
struct rotary_case {
    int32_t num_tokens, num_heads, num_kv_heads, head_size, rotary_dim;
    int64_t pad; /* elements behind each row */
    bool norm, interleaved;
};

static void check_rotary(struct kernel_test *test, const struct rotary_case *c, enum dtype dtype, enum dtype gain_dtype)
{
    enum { MAX_POSITION = 50 };
    struct test_backend *gpu = kernel_test_gpu(test);
    const int64_t q_size = (int64_t)c->num_heads * c->head_size, kv_size = (int64_t)c->num_kv_heads * c->head_size;
    const int64_t stride = q_size + 2 * kv_size + c->pad, num_angles = (int64_t)MAX_POSITION * c->rotary_dim;
    struct backend *const backends[2] = {test->backends[0].b, gpu->b};
    struct tensor rows[2], angles[2], gains[2][2], positions[2];
    int32_t places[64];
    for (int32_t t = 0; t < c->num_tokens; t++) places[t] = (int32_t)random_between(&test->random, 0, MAX_POSITION - 1);
    for (int i = 0; i < 2; i++) {
        struct backend *b = backends[i];
        rows[i] = i ? copy_of(b, &rows[0]) : tensor_random(b, dtype, c->num_tokens * stride, 2, &test->random);
        angles[i] = i ? copy_of(b, &angles[0]) : tensor_random(b, DTYPE_FLOAT32, num_angles + 1, 1, &test->random);
        for (int k = 0; k < 2; k++)
            gains[i][k] = i ? copy_of(b, &gains[0][k]) : tensor_random(b, gain_dtype, c->head_size, 2, &test->random);
        positions[i] = tensor_bytes(b, places, (int64_t)sizeof *places * c->num_tokens);
        const struct norm_params query_norm = norm_of(&gains[i][0]), key_norm = norm_of(&gains[i][1]);
        const struct rotary_args args = {.query = rows[i].data,
                                         .key = (uint8_t *)rows[i].data + q_size * dtype_size(dtype),
                                         .query_stride = stride,
                                         .key_stride = stride,
                                         .positions = positions[i].data,
                                         .cos_sin = angles[i].data,
                                         .query_norm = c->norm ? &query_norm : NULL,
                                         .key_norm = c->norm ? &key_norm : NULL,
                                         .num_tokens = c->num_tokens,
                                         .num_heads = c->num_heads,
                                         .num_kv_heads = c->num_kv_heads,
                                         .head_size = c->head_size,
                                         .rotary_dim = c->rotary_dim,
                                         .interleaved = c->interleaved,
                                         .dtype = dtype};
        b->rotary_embedding(b, &args);
    }
    check_same(gpu, c->norm ? "rotary_embedding with norms" : "rotary_embedding", &rows[1], &rows[0]);
    for (int i = 0; i < 2; i++) {
        tensor_free(&rows[i]), tensor_free(&angles[i]), tensor_free(&positions[i]);
        for (int k = 0; k < 2; k++) tensor_free(&gains[i][k]);
    }
}

/* Whole and partial rotation and none, of neighbours and not, with norms over the heads and without; heads that fill
 * their lanes and not; rows that allow 16-byte reads and not. */
static void rotation_of_real_shapes(void **state)
{
    struct kernel_test *test = *state;
    static const struct rotary_case cases[] = {
        {37, 32, 8, 128, 128, 0, false}, {1, 32, 8, 128, 128, 0, true}, {37, 16, 8, 128, 128, 0, true},
        {5, 8, 1, 256, 256, 8, true},    {7, 12, 12, 80, 80, 0, true},  {64, 4, 2, 64, 32, 0, true},
        {9, 6, 2, 96, 0, 0, true},       {9, 32, 32, 80, 32, 0, false}, {11, 3, 1, 128, 128, 3, true},
        {3, 5, 5, 36, 20, 1, true},      {9, 24, 8, 128, 96, 0, false}, {9, 24, 8, 128, 64, 0, true},
        {6, 7, 7, 30, 30, 0, true},      {4, 2, 1, 512, 512, 0, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int k = 0; k < 3 * 2 * 2; k++) {
            struct rotary_case c = cases[i];
            c.interleaved = k / 6;
            check_rotary(test, &c, types[k % 3], k / 3 % 2 ? DTYPE_FLOAT32 : types[k % 3]);
        }
}

/* Logits of real vocabularies, and of one that does not allow 16-byte reads. */
static void scaled_logits(void **state)
{
    struct kernel_test *test = *state;
    struct test_backend *gpu = kernel_test_gpu(test);
    struct backend *g = gpu->b, *c = test->backends[0].b;
    static const int32_t shapes[][2] = {{1, 256000}, {64, 32000}, {3, 49153}, {1, 1}};
    for (int i = 0; i < 4 * 2; i++) {
        const int32_t num_samples = shapes[i / 2][0], vocab_size = shapes[i / 2][1];
        const int64_t count = (int64_t)num_samples * vocab_size;
        struct tensor logits = tensor_random(c, DTYPE_FLOAT32, count, 80, &test->random), on = copy_of(g, &logits);
        struct scale_logits_args args = {logits.data, num_samples, vocab_size, i % 2 ? 0.0625f : 1.5f,
                                         i % 2 ? 0 : 30.0f};
        c->scale_logits(c, &args);
        args.logits = on.data;
        g->scale_logits(g, &args);
        check_same(gpu, "scale_logits", &on, &logits);
        tensor_free(&logits), tensor_free(&on);
    }
}

/* Gates from far below zero to far above it; sizes that allow 16-byte accesses and not. */
static void activations_of_real_sizes(void **state)
{
    struct kernel_test *test = *state;
    struct test_backend *gpu = kernel_test_gpu(test);
    struct backend *g = gpu->b, *c = test->backends[0].b;
    static const int32_t sizes[] = {14336, 3000, 333};
    enum { TOKENS = 7 };
    for (int i = 0; i < 3 * 3 * NUM_GATE_ACTIVATIONS; i++) {
        const int64_t count = (int64_t)TOKENS * sizes[i % 9 / 3];
        const enum dtype dtype = types[i % 3];
        struct tensor both = tensor_random(c, dtype, 2 * count, 40, &test->random), both_on = copy_of(g, &both);
        struct tensor out = tensor_poison(c, dtype, count), out_on = tensor_poison(g, dtype, count);
        struct act_and_mul_args act = act_and_mul_of(&out, &both, TOKENS),
                                act_on = act_and_mul_of(&out_on, &both_on, TOKENS);
        act.activation = act_on.activation = (enum activation)(i / 9);
        c->act_and_mul(c, &act);
        g->act_and_mul(g, &act_on);
        check_same(gpu, "act_and_mul", &out_on, &out);
        tensor_free(&both), tensor_free(&both_on), tensor_free(&out), tensor_free(&out_on);
    }
}

static void rows_of_real_sizes(void **state)
{
    struct kernel_test *test = *state;
    struct test_backend *gpu = kernel_test_gpu(test);
    struct backend *g = gpu->b, *c = test->backends[0].b;
    enum { TOKENS = 37, SIZE = 4096, VOCABULARY = 100 };
    int32_t ids[TOKENS], rows[TOKENS];
    for (int i = 0; i < TOKENS; i++) {
        ids[i] = (int32_t)random_between(&test->random, -TOKENS, VOCABULARY - 1);
        rows[i] = (int32_t)random_between(&test->random, 0, TOKENS - 1);
    }
    struct tensor ids_on = tensor_bytes(g, ids, sizeof ids), rows_on = tensor_bytes(g, rows, sizeof rows);
    for (int i = 0; i < 3; i++) {
        struct tensor table = tensor_random(c, types[i], VOCABULARY * SIZE, 1, &test->random);
        struct tensor table_on = copy_of(g, &table);
        struct tensor out = tensor_poison(c, types[i], TOKENS * SIZE), out_on = tensor_poison(g, types[i], out.count);
        const struct weight w = weight_of(&table, SIZE, NULL), w_on = weight_of(&table_on, SIZE, NULL);
        struct embedding_args embed_on = embedding_of(&out_on, &ids_on, &rows_on, &w_on);
        struct embedding_args embed = embedding_of(&out, &ids_on, &rows_on, &w);
        embed.ids = ids, embed.last_sampled = rows;
        for (int k = 0; k < 2; k++) { /* the second time with a multiplier */
            embed.multiplier = embed_on.multiplier = k ? 45.25f : 1;
            c->embedding(c, &embed);
            g->embedding(g, &embed_on);
            check_same(gpu, "embedding", &out_on, &out);
        }
        const struct gather_rows_args gather_on = gather_rows_of(&out_on, &table_on, &rows_on);
        struct gather_rows_args gather = gather_rows_of(&out, &table, &rows_on);
        gather.indices = rows;
        c->gather_rows(c, &gather);
        g->gather_rows(g, &gather_on);
        check_same(gpu, "gather_rows", &out_on, &out);
        tensor_free(&table), tensor_free(&table_on), tensor_free(&out), tensor_free(&out_on);
    }
    tensor_free(&ids_on), tensor_free(&rows_on);
}

/* The types of real models: weights and activations of one type, logits in float32. */
static void linear_of_one_type(void **state)
{
    struct kernel_test *test = *state;
    struct test_backend *gpu = kernel_test_gpu(test);
    static const int32_t counts[] = {1, 2, 16, 17, 33, 128, 300};
    enum { OUT = 768, IN = 512, STRIDE = OUT + 64, MOST = 300 };
    use_workspace_of(gpu, MOST, IN, OUT);
    for (int i = 0; i < 7 * 3 * 2; i++) {
        const enum dtype dtype = types[i % 3], out_dtype = i / 3 % 2 ? DTYPE_FLOAT32 : dtype;
        const int32_t tokens = counts[i / 6];
        struct tensor x = tensor_random(gpu->b, dtype, (int64_t)tokens * IN, 1, &test->random);
        struct tensor w = tensor_random(gpu->b, dtype, OUT * IN, 1, &test->random);
        struct tensor bias = tensor_random(gpu->b, dtype, OUT, 3, &test->random);
        struct tensor out = tensor_poison(gpu->b, out_dtype, (int64_t)tokens * STRIDE);
        const bool with_bias = i % 4 < 2;
        const struct weight weight = weight_of(&w, IN, with_bias ? &bias : NULL);
        struct linear_args args = linear_of(&out, &x, &weight);
        args.out_stride = STRIDE;
        gpu->b->linear(gpu->b, &args);
        tensor_download(&out);
        double *xs = tensor_doubles(&x), *ws = tensor_doubles(&w), *biases = tensor_doubles(&bias);
        double *expected = malloc(sizeof(double) * (size_t)tokens * OUT);
        reference_linear(expected, xs, ws, with_bias ? biases : NULL, tokens, OUT, IN);
        const int64_t size = dtype_size(out_dtype);
        for (int64_t t = 0; t < tokens; t++) {
            for (int64_t j = OUT * size; j < STRIDE * size; j++)
                assert_int_equal(out.host[t * STRIDE * size + j], 0xff);
            memmove(out.host + t * OUT * size, out.host + t * STRIDE * size, (size_t)(OUT * size));
        }
        check_close(gpu, "linear", &out, expected, (int64_t)tokens * OUT, out_dtype);
        check_workspace(gpu);
        free(xs), free(ws), free(biases), free(expected);
        tensor_free(&x), tensor_free(&w), tensor_free(&bias), tensor_free(&out);
    }
}

/* Rows that can be read 16 bytes at a time, in runs of slots that cross blocks: the same bits as the CPU's. */
static void cache_writes_of_real_shapes(void **state)
{
    struct kernel_test *test = *state;
    struct test_backend *gpu = kernel_test_gpu(test);
    struct backend *g = gpu->b, *c = test->backends[0].b;
    static const int32_t counts[] = {1, 2, 7, 16, 100, 131}, block_sizes[] = {8, 16, 128};
    enum { KV_HEADS = 4, HEAD = 128, ROW = KV_HEADS * HEAD, MOST = 131, SLOTS = 384 };
    for (int i = 0; i < 3 * 5 * 6; i++) {
        const enum dtype dtype = types[i % 3], cache = (enum dtype)(i / 3 % 5);
        const int32_t tokens = counts[i / 15], block_size = block_sizes[i % 2 + i % 3 / 2];
        struct tensor kv = tensor_random(c, dtype, (int64_t)tokens * 2 * ROW, 3, &test->random),
                      kv_on = copy_of(g, &kv);
        struct tensor k = tensor_poison(c, cache, SLOTS * ROW), k_on = tensor_poison(g, cache, SLOTS * ROW);
        struct tensor v = tensor_poison(c, cache, SLOTS * ROW), v_on = tensor_poison(g, cache, SLOTS * ROW);
        float scales[2] = {0x1p-6f, 0x1p-1f}; /* exact: the CPU divides by it, the GPU multiplies by its inverse */
        int64_t slots[MOST];
        for (int32_t t = 0; t < tokens; t++) slots[t] = t % 11 == 10 ? -1 : (t < 60 ? 5 + t : SLOTS - 1 - (MOST - t));
        struct tensor slots_on = tensor_bytes(g, slots, (int64_t)sizeof *slots * tokens);
        struct tensor scales_on = tensor_bytes(g, scales, sizeof scales);
        struct reshape_and_cache_args args = {.key = kv.data,
                                              .value = (uint8_t *)kv.data + ROW * dtype_size(dtype),
                                              .kv_stride = 2 * ROW,
                                              .k_cache = k.data,
                                              .v_cache = v.data,
                                              .slot_mapping = slots,
                                              .num_tokens = tokens,
                                              .num_kv_heads = KV_HEADS,
                                              .head_size = HEAD,
                                              .v_head_size = HEAD,
                                              .block_size = block_size,
                                              .block_stride = (int64_t)KV_HEADS * HEAD * block_size,
                                              .dtype = dtype,
                                              .cache_dtype = cache,
                                              .kv_scales = scales};
        c->reshape_and_cache(c, &args);
        args.key = kv_on.data;
        args.value = (uint8_t *)kv_on.data + ROW * dtype_size(dtype);
        args.k_cache = k_on.data, args.v_cache = v_on.data, args.slot_mapping = slots_on.data;
        args.kv_scales = scales_on.data;
        g->reshape_and_cache(g, &args);
        tensor_download(&k), tensor_download(&v), tensor_download(&k_on), tensor_download(&v_on);
        assert_memory_equal(k_on.host, k.host, (size_t)k.bytes);
        assert_memory_equal(v_on.host, v.host, (size_t)v.bytes);
        tensor_free(&kv), tensor_free(&kv_on), tensor_free(&k), tensor_free(&k_on), tensor_free(&v), tensor_free(&v_on);
        tensor_free(&slots_on), tensor_free(&scales_on);
    }
}

enum { FAR_HEAD = 128, FAR_BLOCK = 16, FAR_ELEMENTS = FAR_HEAD * FAR_BLOCK, FAR_OFFSET = 3 };

/* Stores a row as K and V of one head, at FAR_OFFSET of a block. */
static void store_far(struct backend *b, void *const caches[2], const struct tensor *row, int64_t block)
{
    const int64_t slot = block * FAR_BLOCK + FAR_OFFSET;
    struct tensor slot_on = tensor_bytes(b, &slot, sizeof slot);
    const struct reshape_and_cache_args args = {.key = row->data,
                                                .value = row->data,
                                                .kv_stride = FAR_HEAD,
                                                .k_cache = caches[0],
                                                .v_cache = caches[1],
                                                .slot_mapping = slot_on.data,
                                                .num_tokens = 1,
                                                .num_kv_heads = 1,
                                                .head_size = FAR_HEAD,
                                                .v_head_size = FAR_HEAD,
                                                .block_size = FAR_BLOCK,
                                                .block_stride = FAR_ELEMENTS,
                                                .dtype = DTYPE_BFLOAT16,
                                                .cache_dtype = DTYPE_BFLOAT16};
    b->reshape_and_cache(b, &args);
    synchronize(b);
    tensor_free(&slot_on);
}

/* A block of K, or of V, holds the row; or zeros, if row is NULL. */
static void check_far(struct backend *b, void *cache, bool is_v, int64_t block, const struct tensor *row)
{
    static uint16_t found[FAR_ELEMENTS], expected[FAR_ELEMENTS];
    memset(expected, 0, sizeof expected);
    for (int d = 0; d < FAR_HEAD && row; d++) {
        const int at = is_v ? d * FAR_BLOCK + FAR_OFFSET : (d / 8 * FAR_BLOCK + FAR_OFFSET) * 8 + d % 8;
        memcpy(&expected[at], row->host + 2 * d, 2);
    }
    b->copy(b, found, (uint8_t *)cache + block * FAR_ELEMENTS * 2, sizeof found, NULL);
    synchronize(b);
    assert_memory_equal(found, expected, sizeof found);
}

/* A block beyond the 2^31st element is written, copied, and read back. The block that a 32-bit index would reach
 * instead stays as it is. */
static void caches_over_2_31_elements(void **state)
{
    struct kernel_test *test = *state;
    struct backend *b = kernel_test_gpu(test)->b;
    enum { WRAPPED = 70 };
    const int64_t per_wrap = ((int64_t)1 << 32) / FAR_ELEMENTS, block = per_wrap + WRAPPED;
    const int64_t bytes = (block + 10) * FAR_ELEMENTS * 2;
    int64_t available, total;
    struct error err;
    void *caches[2];
    if (b->memory_info(b, &available, &total, &err) != STATUS_OK) fail_msg("%s", err.text);
    if (available < 2 * bytes + ((int64_t)2 << 30)) {
        printf("skipped: it needs %.0f GiB of device memory\n", (double)bytes / (1 << 29) + 2);
        skip();
    }
    for (int i = 0; i < 2; i++)
        if (b->memory_alloc(b, MEMORY_DEVICE, bytes, &caches[i], &err) != STATUS_OK) fail_msg("%s", err.text);
    struct tensor row = tensor_random(b, DTYPE_BFLOAT16, FAR_HEAD, 1, &test->random);
    const struct block_pair pair = {(int32_t)block, (int32_t)block + 5};
    struct tensor pair_on = tensor_bytes(b, &pair, sizeof pair);
    const struct copy_blocks_args copy = {
        .caches = caches, .num_caches = 2, .block_bytes = FAR_ELEMENTS * 2, .pairs = pair_on.data, .num_pairs = 1};
    store_far(b, caches, &row, block);
    b->copy_blocks(b, &copy);
    const int64_t looked_at[] = {block, block + 5, WRAPPED, WRAPPED + 5, block - 1, block + 1};
    for (int i = 0; i < 12; i++) check_far(b, caches[i % 2], i % 2, looked_at[i / 2], i < 4 ? &row : NULL);
    for (int i = 0; i < 2; i++) b->memory_free(b, MEMORY_DEVICE, caches[i], bytes);
    tensor_free(&row), tensor_free(&pair_on);
}

/* Blocks 0 .. MOVED_COPIES - 1 are copied to MOVED_COPIED and on; blocks 0 .. MOVED_SWAPS - 1 are swapped out, and back
 * in to MOVED_IN and on. */
enum {
    MOVED_CACHES = 300,
    MOVED_BLOCKS = 630,
    MOVED_BYTES = 44,
    MOVED_COPIES = 10,
    MOVED_SWAPS = 300,
    MOVED_IN = 320,
    MOVED_COPIED = 620,
    MOVED_HOST_BLOCKS = 512
};

static void swap_out_and_in(struct backend *b, void *const *device, void *const *host, backend_stream stream)
{
    struct block_pair out[MOVED_SWAPS], in[MOVED_SWAPS];
    struct error err;
    for (int i = 0; i < MOVED_SWAPS; i++) {
        out[i] = (struct block_pair){i, i * 7 % MOVED_HOST_BLOCKS};
        in[i] = (struct block_pair){out[i].destination, MOVED_IN + i};
    }
    struct swap_blocks_args swap = {.sources = device,
                                    .destinations = host,
                                    .num_caches = MOVED_CACHES,
                                    .block_bytes = MOVED_BYTES,
                                    .pairs = out,
                                    .num_pairs = MOVED_SWAPS};
    b->swap_blocks(b, &swap, stream);
    swap.sources = host, swap.destinations = device, swap.pairs = in;
    b->swap_blocks(b, &swap, stream);
    if (b->stream_synchronize(b, stream, &err) != STATUS_OK) fail_msg("%s", err.text);
}

/* More caches and pairs than one launch takes, swapped on a stream other than the main one. */
static void moves_many_blocks(void **state)
{
    struct kernel_test *test = *state;
    struct backend *b = kernel_test_gpu(test)->b;
    static void *device[MOVED_CACHES], *host[MOVED_CACHES];
    const int64_t cache_bytes = (int64_t)MOVED_BLOCKS * MOVED_BYTES, host_cache = MOVED_HOST_BLOCKS * MOVED_BYTES;
    struct error err;
    struct block_pair copies[MOVED_COPIES];
    backend_stream stream;
    struct tensor t = tensor_random(b, DTYPE_FLOAT32, MOVED_CACHES * cache_bytes / 4, 1, &test->random);
    uint8_t *before = malloc((size_t)t.bytes), *pinned;
    memcpy(before, t.host, (size_t)t.bytes);
    assert_int_equal(b->memory_alloc(b, MEMORY_HOST_PINNED, MOVED_CACHES * host_cache, (void **)&pinned, &err), 0);
    for (int i = 0; i < MOVED_CACHES; i++) {
        device[i] = (uint8_t *)t.data + i * cache_bytes;
        host[i] = pinned + i * host_cache;
    }
    for (int i = 0; i < MOVED_COPIES; i++) copies[i] = (struct block_pair){i, MOVED_COPIED + i};
    struct tensor copies_on = tensor_bytes(b, copies, sizeof copies);
    const struct copy_blocks_args copy = {
        .caches = device, .num_caches = MOVED_CACHES, .block_bytes = MOVED_BYTES, copies_on.data, MOVED_COPIES};
    assert_int_equal(b->stream_create(b, &stream, &err), STATUS_OK);
    b->copy_blocks(b, &copy);
    synchronize(b);
    swap_out_and_in(b, device, host, stream);
    tensor_download(&t);
    for (int i = 0; i < MOVED_CACHES * MOVED_BLOCKS; i++) {
        const int block = i % MOVED_BLOCKS, cache = i / MOVED_BLOCKS;
        const int source = block < MOVED_IN ? block : block - (block < MOVED_COPIED ? MOVED_IN : MOVED_COPIED);
        assert_memory_equal(t.host + cache * cache_bytes + block * MOVED_BYTES,
                            before + cache * cache_bytes + source * MOVED_BYTES, MOVED_BYTES);
    }
    b->stream_destroy(b, stream);
    b->memory_free(b, MEMORY_HOST_PINNED, pinned, MOVED_CACHES * host_cache);
    free(before);
    tensor_free(&t), tensor_free(&copies_on);
}

#ifdef QUIRE_HAVE_CUDA
/* A step of several operations gives the same result as a graph as it gave when its kernels were launched one by one;
 * and the graph reads new inputs. */
static void replays_graphs(void **state)
{
    struct kernel_test *test = *state;
    struct test_backend *gpu = kernel_test_gpu(test);
    struct backend *b = gpu->b;
    enum { TOKENS = 24, SIZE = 512 };
    struct error err;
    backend_graph graph;
    use_workspace_of(gpu, TOKENS, SIZE, 2 * SIZE);
    struct tensor x = tensor_random(b, DTYPE_BFLOAT16, TOKENS * SIZE, 1, &test->random);
    struct tensor w = tensor_random(b, DTYPE_BFLOAT16, 2 * SIZE * SIZE, 1, &test->random);
    struct tensor wide = tensor_poison(b, DTYPE_BFLOAT16, TOKENS * 2 * SIZE);
    struct tensor out = tensor_poison(b, DTYPE_BFLOAT16, TOKENS * SIZE);
    const struct weight weight = weight_of(&w, SIZE, NULL);
    struct rms_norm_args norm = rms_norm_of(&out, &x, &w);
    norm.size = SIZE, norm.num_tokens = TOKENS, norm.x_stride = norm.out_stride = SIZE;
    const struct linear_args linear = linear_of(&wide, &out, &weight);
    const struct act_and_mul_args act = act_and_mul_of(&out, &wide, TOKENS);
    uint8_t *eager = malloc((size_t)out.bytes);
    for (int round = 0; round < 3; round++) { /* launch, capture and replay, replay with another input */
        if (round == 1 && b->capture_begin(b, &err) != STATUS_OK) fail_msg("%s", err.text);
        if (round < 2) {
            b->rms_norm(b, &norm);
            b->linear(b, &linear);
            b->act_and_mul(b, &act);
        }
        if (round == 0) {
            tensor_download(&out);
            memcpy(eager, out.host, (size_t)out.bytes);
            continue;
        }
        if (round == 1 && b->capture_end(b, &graph, &err) != STATUS_OK) fail_msg("%s", err.text);
        if (round == 2) memset(x.host, 0, (size_t)x.bytes);
        tensor_upload(&x);
        b->fill(b, out.data, 0xff, out.bytes);
        b->graph_launch(b, graph);
        tensor_download(&out);
        if (round == 1) assert_memory_equal(out.host, eager, (size_t)out.bytes);
        for (int64_t i = 0; i < out.count; i++) assert_true(round == 1 || tensor_get(&out, i) == 0);
    }
    b->graph_destroy(b, graph);
    free(eager);
    tensor_free(&x), tensor_free(&w), tensor_free(&wide), tensor_free(&out);
}

/* An operation that cannot be done is reported by the next synchronize, and by every later one. */
static void failures_stay(void **state)
{
    struct kernel_test *test = *state;
    struct backend *b = kernel_test_gpu(test)->b;
    struct error err = {""};
    backend_event event;
    struct tensor t = tensor_poison(b, DTYPE_FLOAT32, 256);
    assert_int_equal(b->event_create(b, &event, &err), STATUS_OK);
    struct act_and_mul_args act = act_and_mul_of(&t, &t, 1);
    struct rms_norm_args norm = rms_norm_of(&t, &t, &t);
    act.dtype = DTYPE_FP8_E4M3, norm.dtype = DTYPE_FP8_E5M2;
    b->act_and_mul(b, &act);
    b->rms_norm(b, &norm);
    b->event_record(b, event, NULL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(b->event_synchronize(b, event, &err), STATUS_INTERNAL);
        assert_non_null(strstr(err.text, "act_and_mul"));
        assert_int_equal(b->stream_synchronize(b, NULL, &err), STATUS_INTERNAL);
    }
    backend_cuda_forget_failure(b);
    assert_int_equal(b->stream_synchronize(b, NULL, &err), STATUS_OK);
    backend_graph graph;
    assert_int_equal(b->capture_begin(b, &err), STATUS_OK);
    b->act_and_mul(b, &act);
    assert_int_equal(b->capture_end(b, &graph, &err), STATUS_INTERNAL);
    assert_null(graph);
    assert_non_null(strstr(err.text, "act_and_mul"));
    backend_cuda_forget_failure(b);
    b->fill(b, t.data, 0, t.bytes);
    assert_int_equal(b->stream_synchronize(b, NULL, &err), STATUS_OK);
    b->event_destroy(b, event);
    tensor_free(&t);
}

/* Whichever allocation fails, its error says how much was asked for, and the next allocation works. */
static void allocations_may_fail(void **state)
{
    struct kernel_test *test = *state;
    struct backend *b = kernel_test_gpu(test)->b;
    for (int fails = 1; fails <= 5; fails++) {
        struct error err[4] = {{""}, {""}, {""}, {""}};
        void *device = NULL, *pinned = NULL;
        backend_stream stream = NULL;
        backend_event event = NULL;
        backend_cuda_fail_allocation(b, fails);
        const enum status results[4] = {b->memory_alloc(b, MEMORY_DEVICE, 3 << 20, &device, &err[0]),
                                        b->memory_alloc(b, MEMORY_HOST_PINNED, 3 << 20, &pinned, &err[1]),
                                        b->stream_create(b, &stream, &err[2]), b->event_create(b, &event, &err[3])};
        for (int i = 0; i < 4; i++) {
            assert_int_equal(results[i], i + 1 == fails ? STATUS_OUT_OF_MEMORY : STATUS_OK);
            if (i + 1 == fails) assert_non_null(strstr(err[i].text, i < 2 ? "0.003 GiB" : "cannot create"));
        }
        backend_cuda_fail_allocation(b, 0);
        assert_true((device == NULL) == (fails == 1) && (pinned == NULL) == (fails == 2));
        assert_true((stream == NULL) == (fails == 3) && (event == NULL) == (fails == 4));
        b->memory_free(b, MEMORY_DEVICE, device, 3 << 20);
        b->memory_free(b, MEMORY_HOST_PINNED, pinned, 3 << 20);
        b->stream_destroy(b, stream);
        b->event_destroy(b, event);
        synchronize(b);
    }
    void *data;
    struct error err;
    assert_int_equal(b->memory_alloc(b, MEMORY_DEVICE, (int64_t)1 << 45, &data, &err), STATUS_OUT_OF_MEMORY);
    assert_non_null(strstr(err.text, "free"));
    synchronize(b);
}

/* What was loaded stays in memory; the memory that loading took does not. */
static void preloads(void **state)
{
    struct kernel_test *test = *state;
    struct backend *b = kernel_test_gpu(test)->b;
    int64_t before = 0, after = 0, total;
    struct error err;
    for (int i = 0; i < 3; i++) {
        before = after;
        b->preload(b, i == 0 ? DTYPE_FLOAT16 : DTYPE_BFLOAT16);
        assert_int_equal(b->memory_info(b, &after, &total, &err), STATUS_OK);
    }
    assert_true(after >= before);
    synchronize(b);
    assert_int_equal(backend_open("cuda", 0, &b, &err), STATUS_OK);
    b->preload(b, DTYPE_BFLOAT16);
    b->destroy(b); /* while it is loading */
}

static void opens_no_device_that_is_not_there(void **state)
{
    struct kernel_test *test = *state;
    struct backend *b = kernel_test_gpu(test)->b;
    struct error err;
    assert_int_equal(backend_open("cuda:77", 0, &b, &err), STATUS_INVALID);
    assert_null(b);
    assert_non_null(strstr(err.text, "cuda:77"));
    assert_int_equal(backend_open("auto", 0, &b, &err), STATUS_OK);
    assert_string_equal(b->name, "cuda:0");
    assert_string_equal(err.text, "");
    b->destroy(b);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_of_real_sizes),
        cmocka_unit_test(post_norms_of_real_sizes),
        cmocka_unit_test(norms_inside_wider_rows),
        cmocka_unit_test(rotation_of_real_shapes),
        cmocka_unit_test(scaled_logits),
        cmocka_unit_test(activations_of_real_sizes),
        cmocka_unit_test(rows_of_real_sizes),
        cmocka_unit_test(linear_of_one_type),
        cmocka_unit_test(cache_writes_of_real_shapes),
        cmocka_unit_test(caches_over_2_31_elements),
        cmocka_unit_test(moves_many_blocks),
#ifdef QUIRE_HAVE_CUDA
        cmocka_unit_test(replays_graphs),
        cmocka_unit_test(failures_stay),
        cmocka_unit_test(allocations_may_fail),
        cmocka_unit_test(preloads),
        cmocka_unit_test(opens_no_device_that_is_not_there),
#endif
    };
    cmocka_set_test_filter(getenv("QUIRE_TEST_FILTER"));
    return cmocka_run_group_tests(tests, kernel_test_setup, kernel_test_teardown);
}
