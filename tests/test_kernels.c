/* Every operation of the backend table but attention and sampling: against float64, on each backend there is. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu/cpu.h"
#include "tests/support/kernel_test.h"

static const enum dtype types[] = {DTYPE_FLOAT32, DTYPE_FLOAT16, DTYPE_BFLOAT16};

/* Calls `check` for each backend. */
static void on_every_backend(void **state, void (*check)(struct test_backend *tb, struct random *random))
{
    struct kernel_test *test = *state;
    for (int i = 0; i < test->num_backends; i++) check(&test->backends[i], &test->random);
}

static void refuses(const char *device, const char *words)
{
    struct backend *b = (struct backend *)1;
    struct error err = {""};
    assert_int_not_equal(backend_open(device, 0, &b, &err), STATUS_OK);
    assert_null(b);
    if (!strstr(err.text, words)) fail_msg("'%s' does not say '%s'", err.text, words);
}

static void opens_what_it_knows(void **state)
{
    (void)state;
    struct backend *b;
    struct error err;
    assert_int_equal(backend_open("cpu", 0, &b, &err), STATUS_OK);
    assert_string_equal(b->name, "cpu");
    assert_true(cpu_isa_supported(backend_cpu_isa(b)));
    assert_null(b->capture_begin);
    assert_null(b->decode_step);
    b->destroy(b);
    const char *unknown[] = {"",     "gpu",  "cpu:0", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cuda:99999999999",
                             "CUDA", "cudaa"};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) refuses(unknown[i], "is not known");
    assert_int_equal(backend_open("cpu", -1, &b, &err), STATUS_INVALID);
}

static void allocates_and_copies(struct test_backend *tb, struct random *random)
{
    struct backend *b = tb->b;
    struct error err;
    int64_t free_bytes = -1, total_bytes = -1;
    assert_int_equal(b->memory_info(b, &free_bytes, &total_bytes, &err), STATUS_OK);
    assert_true(free_bytes > 0 && free_bytes <= total_bytes);
    void *data;
    assert_int_equal(b->memory_alloc(b, MEMORY_DEVICE, (int64_t)1 << 55, &data, &err), STATUS_OUT_OF_MEMORY);
    assert_null(data);
    for (enum memory_kind kind = MEMORY_DEVICE; kind <= MEMORY_HOST_PINNED; kind++)
        for (int64_t bytes = 0; bytes < 100000000; bytes = bytes * 7 + 1) {
            assert_int_equal(b->memory_alloc(b, kind, bytes, &data, &err), STATUS_OK);
            assert_non_null(data);
            assert_int_equal((uintptr_t)data % 256, 0);
            b->memory_free(b, kind, data, bytes);
        }
    uint8_t in[1000], out[1000];
    for (int i = 0; i < 1000; i++) in[i] = (uint8_t)random_bits(random);
    struct tensor t = tensor_bytes(b, in, 1000);
    b->fill(b, (uint8_t *)t.data + 10, 0x5c, 20, NULL);
    b->copy(b, NULL, NULL, 0, NULL); /* nothing, from nowhere */
    b->copy(b, out, t.data, 1000, NULL);
    assert_int_equal(b->stream_synchronize(b, NULL, &err), STATUS_OK);
    memset(in + 10, 0x5c, 20);
    assert_memory_equal(in, out, 1000);
    tensor_free(&t);
}

static void orders_streams(struct test_backend *tb, struct random *random)
{
    (void)random;
    struct backend *b = tb->b;
    struct error err;
    backend_stream stream;
    backend_event event;
    assert_int_equal(b->stream_create(b, &stream, &err), STATUS_OK);
    assert_int_equal(b->event_create(b, &event, &err), STATUS_OK);
    struct tensor t = tensor_poison(b, DTYPE_FLOAT32, 10);
    b->fill(b, t.data, 0, 40, stream);
    b->event_record(b, event, stream);
    b->event_wait(b, event, NULL);
    assert_int_equal(b->event_synchronize(b, event, &err), STATUS_OK);
    assert_int_equal(b->stream_synchronize(b, stream, &err), STATUS_OK);
    tensor_download(&t);
    for (int i = 0; i < 10; i++) assert_true(tensor_get(&t, i) == 0);
    tensor_free(&t);
    b->event_destroy(b, event);
    b->stream_destroy(b, stream);
}

/* Workspace for products of up to these sizes. */
static void workspace_for(struct test_backend *tb, int32_t tokens, int64_t rows, int64_t columns)
{
    const struct workspace_query query = {.max_num_tokens = tokens,
                                          .max_num_seqs = 1,
                                          .max_model_len = 16,
                                          .num_heads = 1,
                                          .num_kv_heads = 1,
                                          .head_size = 64,
                                          .block_size = 16,
                                          .max_in_features = columns,
                                          .max_out_features = rows,
                                          .vocab_size = 16};
    use_workspace(tb, &query);
}

struct linear_case {
    int32_t tokens;
    int64_t rows, columns;
    enum dtype dtype, w_dtype, out_dtype;
    bool bias;
    int64_t x_pad, out_pad; /* elements between rows, NaN in x and left alone in out */
};

/* Copies the padded rows of a tensor together. */
static double *rows_of(const struct tensor *t, int64_t rows, int64_t columns, int64_t stride)
{
    double *out = malloc(sizeof *out * (size_t)(rows * columns + 1));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) out[r * columns + c] = tensor_get(t, r * stride + c);
    return out;
}

/* Moves the rows of a padded output together on the host, after checking that what is between is still poison. */
static void close_up(const struct test_backend *tb, struct tensor *t, int64_t rows, int64_t columns, int64_t stride)
{
    const int64_t size = dtype_size(t->dtype);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = columns * size; i < stride * size; i++)
            if (t->host[r * stride * size + i] != 0xff) fail_msg("%s: linear wrote between rows", tb->name);
        memmove(t->host + r * columns * size, t->host + r * stride * size, (size_t)(columns * size));
    }
}

static void check_linear(struct test_backend *tb, struct random *random, const struct linear_case *c)
{
    struct backend *b = tb->b;
    char what[200];
    const int64_t x_stride = c->columns + c->x_pad, out_stride = c->rows + c->out_pad;
    struct tensor x = tensor_poison(b, c->dtype, c->tokens * x_stride);
    struct tensor w = tensor_random(b, c->w_dtype, c->rows * c->columns, 1, random);
    struct tensor bias = tensor_random(b, c->w_dtype, c->rows, 3, random);
    struct tensor out = tensor_poison(b, c->out_dtype, c->tokens * out_stride);
    for (int64_t t = 0; t < c->tokens; t++)
        for (int64_t i = 0; i < c->columns; i++) tensor_set(&x, t * x_stride + i, 2 * random_uniform(random) - 1);
    tensor_upload(&x);
    const struct weight weight = {.data = w.data,
                                  .dtype = c->w_dtype,
                                  .out_features = c->rows,
                                  .in_features = c->columns,
                                  .bias = c->bias ? bias.data : NULL};
    b->linear(b, out.data, out_stride, c->out_dtype, x.data, x_stride, c->dtype, c->tokens, &weight, NULL);
    tensor_download(&out);
    double *xs = rows_of(&x, c->tokens, c->columns, x_stride), *ws = tensor_doubles(&w);
    double *biases = tensor_doubles(&bias), *expected = malloc(sizeof(double) * (size_t)(c->tokens * c->rows + 1));
    reference_linear(expected, xs, ws, c->bias ? biases : NULL, c->tokens, c->rows, c->columns);
    snprintf(what, sizeof what, "linear: %d x %lld x %lld, %s %s to %s", c->tokens, (long long)c->rows,
             (long long)c->columns, dtype_name(c->dtype), dtype_name(c->w_dtype), dtype_name(c->out_dtype));
    close_up(tb, &out, c->tokens, c->rows, out_stride);
    check_close(tb, what, &out, expected, c->tokens * c->rows, c->out_dtype);
    check_workspace(tb);
    free(xs), free(ws), free(biases), free(expected);
    tensor_free(&x), tensor_free(&w), tensor_free(&bias), tensor_free(&out);
}

/* Row counts on both sides of every kernel's limit. */
static void linear_of_few_and_many_rows(struct test_backend *tb, struct random *random)
{
    static const int32_t counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 13, 14, 15, 16, 17, 18, 20, 27, 28, 29, 42, 100, 257};
    workspace_for(tb, 257, 200, 300);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int t = 0; t < 3; t++) {
            const struct linear_case c = {.tokens = counts[i],
                                          .rows = 196,
                                          .columns = 272,
                                          .w_dtype = types[t],
                                          .bias = i % 2 == 0,
                                          .x_pad = i % 3,
                                          .out_pad = i % 4};
            check_linear(tb, random, &c);
        }
}

static void linear_of_odd_sizes(struct test_backend *tb, struct random *random)
{
    workspace_for(tb, 40, 200, 700);
    for (int i = 0; i < 60; i++) {
        const struct linear_case c = {.tokens = (int32_t)random_between(random, 1, 40),
                                      .rows = random_between(random, 1, 200),
                                      .columns = random_between(random, 1, i % 4 ? 80 : 700),
                                      .dtype = types[random_between(random, 0, 2)],
                                      .w_dtype = types[random_between(random, 0, 2)],
                                      .out_dtype = types[random_between(random, 0, 2)],
                                      .bias = random_between(random, 0, 1) == 1,
                                      .x_pad = random_between(random, 0, 9),
                                      .out_pad = random_between(random, 0, 9)};
        check_linear(tb, random, &c);
    }
}

/* More rows than are packed at once, deep and wide enough for every loop of the blocking to turn twice. */
static void linear_of_large_sizes(struct test_backend *tb, struct random *random)
{
    const struct linear_case cases[] = {
        {.tokens = 1100, .rows = 70, .columns = 96, .w_dtype = DTYPE_BFLOAT16},
        {.tokens = 60, .rows = 300, .columns = 1030, .w_dtype = DTYPE_FLOAT16, .bias = true},
        {.tokens = 33,
         .rows = 520,
         .columns = 600,
         .dtype = DTYPE_BFLOAT16,
         .w_dtype = DTYPE_BFLOAT16,
         .out_dtype = DTYPE_BFLOAT16},
        {.tokens = 1, .rows = 2000, .columns = 2048, .w_dtype = DTYPE_BFLOAT16, .bias = true},
        {.tokens = 9, .rows = 1001, .columns = 768, .w_dtype = DTYPE_FLOAT16},
    };
    workspace_for(tb, 1100, 2000, 2048);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_linear(tb, random, &cases[i]);
}

/* With a workspace that was made for less, results are still right. */
static void linear_of_more_than_was_said(struct test_backend *tb, struct random *random)
{
    if (!tb->is_cpu) return;
    const struct linear_case c = {.tokens = 100, .rows = 90, .columns = 500, .w_dtype = DTYPE_BFLOAT16};
    workspace_for(tb, 1, 90, 64);
    check_linear(tb, random, &c);
}

/* A row of the result is the same to rounding, whatever other rows are in the call. */
static void linear_rows_are_independent(struct test_backend *tb, struct random *random)
{
    enum { TOKENS = 64, ROWS = 96, COLUMNS = 512 };
    struct tensor x = tensor_random(tb->b, DTYPE_FLOAT32, TOKENS * COLUMNS, 1, random);
    struct tensor w = tensor_random(tb->b, DTYPE_BFLOAT16, ROWS * COLUMNS, 1, random);
    struct tensor all = tensor_poison(tb->b, DTYPE_FLOAT32, TOKENS * ROWS);
    struct tensor one = tensor_poison(tb->b, DTYPE_FLOAT32, ROWS);
    const struct weight weight = {
        .data = w.data, .dtype = DTYPE_BFLOAT16, .out_features = ROWS, .in_features = COLUMNS};
    workspace_for(tb, TOKENS, ROWS, COLUMNS);
    tb->b->linear(tb->b, all.data, ROWS, DTYPE_FLOAT32, x.data, COLUMNS, DTYPE_FLOAT32, TOKENS, &weight, NULL);
    tb->b->linear(tb->b, one.data, ROWS, DTYPE_FLOAT32, (float *)x.data + 37 * COLUMNS, COLUMNS, DTYPE_FLOAT32, 1,
                  &weight, NULL);
    tensor_download(&all), tensor_download(&one);
    double difference = 0, norm = 0;
    for (int i = 0; i < ROWS; i++) {
        difference += pow(tensor_get(&one, i) - tensor_get(&all, 37 * ROWS + i), 2);
        norm += pow(tensor_get(&one, i), 2);
    }
    assert_true(sqrt(difference) <= 1e-6 * sqrt(norm));
    tensor_free(&x), tensor_free(&w), tensor_free(&all), tensor_free(&one);
}

static void norms(struct test_backend *tb, struct random *random)
{
    static const int32_t sizes[] = {1, 7, 64, 511, 512, 513, 2048, 4100};
    for (int i = 0; i < 8 * 9; i++) {
        const enum dtype dtype = types[i % 3], gain_dtype = types[i / 3 % 3];
        const int32_t size = sizes[i / 9], tokens = i % 2 ? 1 : 5;
        struct tensor x = tensor_random(tb->b, dtype, (int64_t)tokens * size, 3, random);
        struct tensor residual = tensor_random(tb->b, dtype, (int64_t)tokens * size, 3, random);
        struct tensor gain = tensor_random(tb->b, gain_dtype, size, 1, random);
        struct tensor out = tensor_poison(tb->b, dtype, (int64_t)tokens * size);
        double *xs = tensor_doubles(&x), *residuals = tensor_doubles(&residual), *gains = tensor_doubles(&gain);
        double *expected = malloc(sizeof(double) * (size_t)out.count);
        tb->b->rms_norm(tb->b, out.data, x.data, gain.data, gain_dtype, 1e-5f, tokens, size, dtype, NULL);
        tensor_download(&out);
        reference_rms_norm(expected, xs, gains, 1e-5, tokens, size);
        check_close(tb, "rms_norm", &out, expected, out.count, dtype);
        void *target = i % 4 < 2 ? out.data : x.data; /* out may be x */
        tb->b->fused_add_rms_norm(tb->b, target, x.data, residual.data, gain.data, gain_dtype, 1e-5f, tokens, size,
                                  dtype, NULL);
        tensor_download(i % 4 < 2 ? &out : &x), tensor_download(&residual);
        for (int64_t j = 0; j < out.count; j++) residuals[j] += xs[j];
        check_close(tb, "fused_add_rms_norm's residual", &residual, residuals, out.count, dtype);
        reference_rms_norm(expected, residuals, gains, 1e-5, tokens, size);
        check_close(tb, "fused_add_rms_norm", i % 4 < 2 ? &out : &x, expected, out.count, dtype);
        free(xs), free(residuals), free(gains), free(expected);
        tensor_free(&x), tensor_free(&residual), tensor_free(&gain), tensor_free(&out);
    }
}

static void norm_of_zeros_is_zero(struct test_backend *tb, struct random *random)
{
    struct tensor x = tensor_random(tb->b, DTYPE_FLOAT32, 256, 0, random);
    struct tensor gain = tensor_random(tb->b, DTYPE_FLOAT32, 256, 1, random);
    struct tensor out = tensor_poison(tb->b, DTYPE_FLOAT32, 256);
    tb->b->rms_norm(tb->b, out.data, x.data, gain.data, DTYPE_FLOAT32, 1e-6f, 1, 256, DTYPE_FLOAT32, NULL);
    tensor_download(&out);
    for (int i = 0; i < 256; i++) assert_true(tensor_get(&out, i) == 0);
    tensor_free(&x), tensor_free(&gain), tensor_free(&out);
}

/* Query and key lie side by side in a fused row whose V must stay as it is. */
static void check_rotary(struct test_backend *tb, struct random *random, enum dtype dtype, int32_t head_size,
                         int32_t rotary_dim)
{
    enum { TOKENS = 9, HEADS = 3, KV_HEADS = 2, POSITIONS = 50 };
    const int64_t q = HEADS * head_size, k = KV_HEADS * head_size, stride = q + 2 * k;
    struct tensor x = tensor_random(tb->b, dtype, TOKENS * stride, 1, random);
    struct tensor table = tensor_random(tb->b, DTYPE_FLOAT32, (int64_t)POSITIONS * rotary_dim, 1, random);
    int32_t positions[TOKENS];
    for (int i = 0; i < TOKENS; i++) positions[i] = (int32_t)random_between(random, 0, POSITIONS - 1);
    struct tensor positions_on = tensor_bytes(tb->b, positions, sizeof positions);
    double *expected = tensor_doubles(&x), *tables = tensor_doubles(&table);
    for (int64_t t = 0; t < TOKENS; t++) {
        reference_rotary(expected + t * stride, positions + t, tables, 1, HEADS, head_size, rotary_dim);
        reference_rotary(expected + t * stride + q, positions + t, tables, 1, KV_HEADS, head_size, rotary_dim);
    }
    const struct rotary_args args = {.query = x.data,
                                     .key = (uint8_t *)x.data + q * dtype_size(dtype),
                                     .query_stride = stride,
                                     .key_stride = stride,
                                     .positions = positions_on.data,
                                     .cos_sin = table.data,
                                     .num_tokens = TOKENS,
                                     .num_heads = HEADS,
                                     .num_kv_heads = KV_HEADS,
                                     .head_size = head_size,
                                     .rotary_dim = rotary_dim,
                                     .dtype = dtype};
    tb->b->rotary_embedding(tb->b, &args, NULL);
    tensor_download(&x);
    check_close(tb, "rotary_embedding", &x, expected, x.count, dtype);
    for (int64_t t = 0; t < TOKENS; t++)
        for (int64_t i = q + k; i < stride; i++)
            assert_true(tensor_get(&x, t * stride + i) == expected[t * stride + i]);
    free(expected), free(tables);
    tensor_free(&x), tensor_free(&table), tensor_free(&positions_on);
}

static void rotates(struct test_backend *tb, struct random *random)
{
    for (int i = 0; i < 3; i++) {
        check_rotary(tb, random, types[i], 64, 64);
        check_rotary(tb, random, types[i], 128, 128);
        check_rotary(tb, random, types[i], 80, 32); /* a part of the head */
        check_rotary(tb, random, types[i], 120, 120);
    }
}

static void activates(struct test_backend *tb, struct random *random)
{
    static const int32_t sizes[] = {1, 5, 64, 512, 700, 3001};
    for (int i = 0; i < 18; i++) {
        const int32_t size = sizes[i / 3], tokens = i % 2 ? 2 : 7;
        struct tensor x = tensor_random(tb->b, types[i % 3], 2 * (int64_t)tokens * size, i % 5 ? 4 : 200, random);
        struct tensor out = tensor_poison(tb->b, types[i % 3], (int64_t)tokens * size);
        double *xs = tensor_doubles(&x), *expected = malloc(sizeof(double) * (size_t)out.count);
        tb->b->silu_and_mul(tb->b, out.data, x.data, tokens, size, types[i % 3], NULL);
        tensor_download(&out);
        reference_silu_and_mul(expected, xs, tokens, size);
        check_close(tb, "silu_and_mul", &out, expected, out.count, types[i % 3]);
        free(xs), free(expected);
        tensor_free(&x), tensor_free(&out);
    }
}

static void embeds(struct test_backend *tb, struct random *random)
{
    enum { TOKENS = 6, VOCABULARY = 40, COLUMNS = 515 };
    const int32_t ids[TOKENS] = {3, -1, 39, -3, 0, -2}, sampled[3] = {7, 11, 38}, are[TOKENS] = {3, 7, 39, 38, 0, 11};
    struct tensor ids_on = tensor_bytes(tb->b, ids, sizeof ids),
                  sampled_on = tensor_bytes(tb->b, sampled, sizeof sampled);
    for (int i = 0; i < 9; i++) {
        struct tensor table = tensor_random(tb->b, types[i % 3], VOCABULARY * COLUMNS, 1, random);
        struct tensor out = tensor_poison(tb->b, types[i / 3], TOKENS * COLUMNS);
        const struct weight weight = {
            .data = table.data, .dtype = types[i % 3], .out_features = VOCABULARY, .in_features = COLUMNS};
        tb->b->embedding(tb->b, out.data, ids_on.data, sampled_on.data, TOKENS, &weight, types[i / 3], NULL);
        tensor_download(&out);
        double *expected = malloc(sizeof(double) * TOKENS * COLUMNS);
        for (int64_t t = 0; t < TOKENS; t++)
            for (int64_t c = 0; c < COLUMNS; c++) expected[t * COLUMNS + c] = tensor_get(&table, are[t] * COLUMNS + c);
        check_close(tb, "embedding", &out, expected, out.count, types[i / 3]);
        free(expected);
        tensor_free(&table), tensor_free(&out);
    }
    tensor_free(&ids_on), tensor_free(&sampled_on);
}

static void gathers_rows(struct test_backend *tb, struct random *random)
{
    const int32_t rows[5] = {6, 0, 3, 3, 1};
    struct tensor rows_on = tensor_bytes(tb->b, rows, sizeof rows);
    for (int i = 0; i < 3; i++) {
        struct tensor x = tensor_random(tb->b, types[i], 7 * 33, 1, random),
                      out = tensor_poison(tb->b, types[i], 5 * 33);
        tb->b->gather_rows(tb->b, out.data, x.data, rows_on.data, 5, 33, types[i], NULL);
        tensor_download(&out);
        const size_t bytes = 33 * (size_t)dtype_size(types[i]);
        for (size_t r = 0; r < 5; r++)
            assert_memory_equal(out.host + r * bytes, x.host + (size_t)rows[r] * bytes, bytes);
        tensor_free(&x), tensor_free(&out);
    }
    tensor_free(&rows_on);
}

static void updates_block_tables(struct test_backend *tb, struct random *random)
{
    (void)random;
    int32_t table[4 * 10];
    const struct block_table_delta deltas[] = {{0, 3, 9, 77}, {0, 0, 0, 5}, {0, 1, 4, 6}, {0, 1, 4, 8}};
    for (int i = 0; i < 40; i++) table[i] = -i;
    struct tensor table_on = tensor_bytes(tb->b, table, sizeof table);
    struct tensor deltas_on = tensor_bytes(tb->b, deltas, sizeof deltas);
    tb->b->update_block_tables(tb->b, table_on.data, 10, deltas_on.data, 3, NULL);
    tb->b->update_block_tables(tb->b, table_on.data, 10, (struct block_table_delta *)deltas_on.data + 3, 1, NULL);
    tb->b->update_block_tables(tb->b, table_on.data, 10, deltas_on.data, 0, NULL);
    table[39] = 77, table[0] = 5, table[14] = 8;
    tensor_download(&table_on);
    assert_memory_equal(table_on.host, table, sizeof table);
    tensor_free(&table_on), tensor_free(&deltas_on);
}

/* Stores tokens at shuffled slots of a cache that is all NaN; what no token names stays as it was. */
static void check_reshape(struct test_backend *tb, struct random *random, enum dtype dtype, enum dtype cache,
                          int32_t head_size, int32_t block_size)
{
    enum { TOKENS = 21, KV_HEADS = 2, BLOCKS = 9 };
    const int64_t row = (int64_t)KV_HEADS * head_size, stride = 3 * row + 7, x = 16 / dtype_size(cache);
    const float k_scale = dtype_size(cache) == 1 ? 0.25f : 1, v_scale = dtype_size(cache) == 1 ? 0.5f : 1;
    struct tensor fused = tensor_random(tb->b, dtype, TOKENS * stride, 1, random);
    for (int64_t i = 0; i < TOKENS * stride; i += 7) /* zeros of both signs, and numbers that an 8-bit float has not */
        tensor_set(&fused, i, i % 3 == 0 ? 0.0 : i % 3 == 1 ? -0.0 : ldexp(1, -(int)(i % 30)));
    tensor_upload(&fused);
    struct tensor k = tensor_poison(tb->b, cache, BLOCKS * row * block_size);
    struct tensor v = tensor_poison(tb->b, cache, BLOCKS * row * block_size);
    uint8_t *k_expected = malloc((size_t)k.bytes), *v_expected = malloc((size_t)v.bytes);
    memset(k_expected, 0xff, (size_t)k.bytes), memset(v_expected, 0xff, (size_t)v.bytes);
    int64_t slots[TOKENS];
    for (int64_t t = 0; t < TOKENS; t++) {
        slots[t] = t % 5 == 3 ? -1 : (t * 3 * block_size + t) % ((int64_t)BLOCKS * block_size);
        for (int64_t earlier = 0; earlier < t && slots[t] >= 0; earlier++)
            if (slots[earlier] == slots[t]) slots[t] = -1;
        for (int64_t h = 0; h < KV_HEADS && slots[t] >= 0; h++)
            for (int64_t d = 0; d < head_size; d++) {
                const int64_t block = slots[t] / block_size, offset = slots[t] % block_size;
                const int64_t k_to =
                    (((block * KV_HEADS + h) * (head_size / x) + d / x) * block_size + offset) * x + d % x;
                const int64_t v_to = ((block * KV_HEADS + h) * head_size + d) * block_size + offset;
                tensor_set(&k, k_to, tensor_get(&fused, t * stride + row + h * head_size + d) / (double)k_scale);
                tensor_set(&v, v_to, tensor_get(&fused, t * stride + 2 * row + h * head_size + d) / (double)v_scale);
                memcpy(k_expected + k_to * dtype_size(cache), k.host + k_to * dtype_size(cache),
                       (size_t)dtype_size(cache));
                memcpy(v_expected + v_to * dtype_size(cache), v.host + v_to * dtype_size(cache),
                       (size_t)dtype_size(cache));
            }
    }
    struct tensor slots_on = tensor_bytes(tb->b, slots, sizeof slots);
    const struct reshape_and_cache_args args = {.key = (uint8_t *)fused.data + row * dtype_size(dtype),
                                                .value = (uint8_t *)fused.data + 2 * row * dtype_size(dtype),
                                                .kv_stride = stride,
                                                .k_cache = k.data,
                                                .v_cache = v.data,
                                                .slot_mapping = slots_on.data,
                                                .num_tokens = TOKENS,
                                                .num_kv_heads = KV_HEADS,
                                                .head_size = head_size,
                                                .block_size = block_size,
                                                .dtype = dtype,
                                                .cache_dtype = cache,
                                                .k_scale = k_scale,
                                                .v_scale = v_scale};
    tb->b->reshape_and_cache(tb->b, &args, NULL);
    tensor_download(&k), tensor_download(&v);
    assert_memory_equal(k.host, k_expected, (size_t)k.bytes);
    assert_memory_equal(v.host, v_expected, (size_t)v.bytes);
    free(k_expected), free(v_expected);
    tensor_free(&fused), tensor_free(&k), tensor_free(&v), tensor_free(&slots_on);
}

static void stores_keys_and_values(struct test_backend *tb, struct random *random)
{
    static const int32_t head_sizes[] = {64, 80, 96, 112, 120, 128, 192, 256}, block_sizes[] = {8, 16, 32, 64, 128};
    for (int i = 0; i < 40; i++) {
        const enum dtype cache = (enum dtype)(i % 5);
        const int32_t head_size = head_sizes[i % 8];
        if (head_size % 16 != 0 && dtype_size(cache) == 1) continue;
        check_reshape(tb, random, types[i / 5 % 3], cache, head_size, block_sizes[i / 8]);
    }
}

static void moves_blocks(struct test_backend *tb, struct random *random)
{
    enum { CACHES = 4, BLOCKS = 12, BYTES = 640 };
    const struct block_pair copies[] = {{3, 5}, {3, 6}, {11, 0}}, out_pairs[] = {{5, 1}, {0, 3}},
                            in_pairs[] = {{1, 7}, {3, 8}};
    struct tensor caches[CACHES], pairs_on = tensor_bytes(tb->b, copies, sizeof copies);
    void *device[CACHES], *host[CACHES];
    uint8_t *before[CACHES];
    struct error err;
    for (int i = 0; i < CACHES; i++) {
        caches[i] = tensor_random(tb->b, DTYPE_FLOAT32, BLOCKS * BYTES / 4, 1, random);
        before[i] = malloc(BLOCKS * BYTES);
        memcpy(before[i], caches[i].host, BLOCKS * BYTES);
        device[i] = caches[i].data;
        assert_int_equal(tb->b->memory_alloc(tb->b, MEMORY_HOST_PINNED, 4 * BYTES, &host[i], &err), STATUS_OK);
    }
    tb->b->copy_blocks(tb->b, device, CACHES, BYTES, pairs_on.data, 3, NULL);
    tb->b->swap_blocks(tb->b, device, host, CACHES, BYTES, out_pairs, 2, NULL);
    tb->b->swap_blocks(tb->b, host, device, CACHES, BYTES, in_pairs, 2, NULL);
    tb->b->swap_blocks(tb->b, host, device, CACHES, BYTES, NULL, 0, NULL);
    static const int32_t source[BLOCKS] = {11, 1, 2,  3, 4,  3,
                                           3,  3, 11, 9, 10, 11}; /* what each block should hold now */
    for (int i = 0; i < CACHES; i++) {
        tensor_download(&caches[i]);
        for (int block = 0; block < BLOCKS; block++)
            assert_memory_equal(caches[i].host + block * BYTES, before[i] + source[block] * BYTES, BYTES);
        tb->b->memory_free(tb->b, MEMORY_HOST_PINNED, host[i], 4 * BYTES);
        free(before[i]);
        tensor_free(&caches[i]);
    }
    tensor_free(&pairs_on);
}

/* Nothing to do is done without touching anything. */
static void empty_calls(struct test_backend *tb, struct random *random)
{
    struct tensor t = tensor_random(tb->b, DTYPE_FLOAT32, 64, 1, random), same = tensor_bytes(tb->b, t.host, t.bytes);
    const struct weight weight = {.data = t.data, .out_features = 8, .in_features = 8};
    workspace_for(tb, 16, 8, 8);
    tb->b->linear(tb->b, t.data, 8, DTYPE_FLOAT32, t.data, 8, DTYPE_FLOAT32, 0, &weight, NULL);
    tb->b->rms_norm(tb->b, t.data, t.data, t.data, DTYPE_FLOAT32, 1e-5f, 0, 64, DTYPE_FLOAT32, NULL);
    tb->b->silu_and_mul(tb->b, t.data, t.data, 0, 8, DTYPE_FLOAT32, NULL);
    tb->b->gather_rows(tb->b, t.data, t.data, NULL, 0, 8, DTYPE_FLOAT32, NULL);
    tb->b->embedding(tb->b, t.data, NULL, NULL, 0, &weight, DTYPE_FLOAT32, NULL);
    tb->b->all_reduce(tb->b, t.data, 64, DTYPE_FLOAT32, NULL);
    tensor_download(&t);
    assert_memory_equal(t.host, same.host, (size_t)t.bytes);
    tensor_free(&t), tensor_free(&same);
}

#define EVERY_BACKEND_TEST(name)                                                                                       \
    static void test_##name(void **state)                                                                              \
    {                                                                                                                  \
        on_every_backend(state, name);                                                                                 \
    }
EVERY_BACKEND_TEST(allocates_and_copies)
EVERY_BACKEND_TEST(orders_streams)
EVERY_BACKEND_TEST(linear_of_few_and_many_rows)
EVERY_BACKEND_TEST(linear_of_odd_sizes)
EVERY_BACKEND_TEST(linear_of_large_sizes)
EVERY_BACKEND_TEST(linear_of_more_than_was_said)
EVERY_BACKEND_TEST(linear_rows_are_independent)
EVERY_BACKEND_TEST(norms)
EVERY_BACKEND_TEST(norm_of_zeros_is_zero)
EVERY_BACKEND_TEST(rotates)
EVERY_BACKEND_TEST(activates)
EVERY_BACKEND_TEST(embeds)
EVERY_BACKEND_TEST(gathers_rows)
EVERY_BACKEND_TEST(updates_block_tables)
EVERY_BACKEND_TEST(stores_keys_and_values)
EVERY_BACKEND_TEST(moves_blocks)
EVERY_BACKEND_TEST(empty_calls)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens_what_it_knows),
        cmocka_unit_test(test_allocates_and_copies),
        cmocka_unit_test(test_orders_streams),
        cmocka_unit_test(test_linear_of_few_and_many_rows),
        cmocka_unit_test(test_linear_of_odd_sizes),
        cmocka_unit_test(test_linear_of_large_sizes),
        cmocka_unit_test(test_linear_of_more_than_was_said),
        cmocka_unit_test(test_linear_rows_are_independent),
        cmocka_unit_test(test_norms),
        cmocka_unit_test(test_norm_of_zeros_is_zero),
        cmocka_unit_test(test_rotates),
        cmocka_unit_test(test_activates),
        cmocka_unit_test(test_embeds),
        cmocka_unit_test(test_gathers_rows),
        cmocka_unit_test(test_updates_block_tables),
        cmocka_unit_test(test_stores_keys_and_values),
        cmocka_unit_test(test_moves_blocks),
        cmocka_unit_test(test_empty_calls),
    };
    cmocka_set_test_filter(getenv("QUIRE_TEST_FILTER"));
    return cmocka_run_group_tests(tests, kernel_test_setup, kernel_test_teardown);
}
