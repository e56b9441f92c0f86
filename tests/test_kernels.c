/* Every operation but attention and sampling, against float64, on each backend of this machine. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/cpu/cpu.h"
#include "kernels/kv_scale.h"
#include "tests/support/operations.h"

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
    b->destroy(b);
    const char *unknown[] = {"",     "gpu",  "cpu:0", "cuda:", "cuda:x", "cuda:-1", "cuda:1x", "cuda:99999999999",
                             "CUDA", "cudaa"};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) refuses(unknown[i], "is not known");
    assert_int_equal(backend_open("cpu", -1, &b, &err), STATUS_INVALID);
}

static void chooses_an_instruction_set(void **state)
{
    (void)state;
    struct backend *b;
    struct error err;
    assert_int_equal(backend_open("cpu", 1, &b, &err), STATUS_OK);
    const enum cpu_isa widest = backend_cpu_isa(b);
    for (enum cpu_isa isa = CPU_SCALAR; isa < CPU_ISA_COUNT; isa++) {
        const enum status status = backend_choose_isa(b, cpu_isa_name(isa), &err);
        assert_int_equal(status, cpu_isa_supported(isa) ? STATUS_OK : STATUS_UNSUPPORTED);
        if (status == STATUS_OK) assert_string_equal(b->isa, cpu_isa_name(isa));
        if (status == STATUS_OK) assert_int_equal(backend_cpu_isa(b), isa);
        if (status != STATUS_OK) assert_non_null(strstr(err.text, cpu_isa_name(widest)));
    }
    assert_int_equal(backend_choose_isa(b, "sse9", &err), STATUS_INVALID);
    assert_int_equal(backend_choose_isa(b, "auto", &err), STATUS_OK);
    assert_int_equal(backend_cpu_isa(b), widest);
    b->destroy(b);
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
    b->fill(b, (uint8_t *)t.data + 10, 0x5c, 20);
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
    b->fill(b, t.data, 0, 40);
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

/* Numbers in pinned memory, to which the host adds 1. */
struct host_numbers {
    int32_t *numbers, count, calls;
};

static void add_one(void *context)
{
    struct host_numbers *n = context;
    for (int32_t i = 0; i < n->count; i++) n->numbers[i]++;
    n->calls++;
}

static void add_on_the_host(struct backend *b, struct tensor *device, struct host_numbers *n)
{
    const struct copy_segment there = {n->numbers, device->data, device->bytes},
                              back = {device->data, n->numbers, device->bytes};
    b->copy_many(b, &(struct copy_many_args){.segments = &there, .count = 1});
    b->call_host(b, add_one, n);
    b->copy_many(b, &(struct copy_many_args){.segments = &back, .count = 1});
}

/* The host's work is done between what is put on the stream before and after it, also in a graph. */
static void calls_the_host(struct test_backend *tb, struct random *random)
{
    enum { COUNT = 5001 };
    struct backend *b = tb->b;
    struct error err;
    int32_t before[COUNT];
    void *numbers;
    int adds = 2;
    for (int i = 0; i < COUNT; i++) before[i] = (int32_t)(random_bits(random) >> 40);
    struct tensor device = tensor_bytes(b, before, sizeof before);
    assert_int_equal(b->memory_alloc(b, MEMORY_HOST_PINNED, sizeof before, &numbers, &err), STATUS_OK);
    struct host_numbers n = {.numbers = numbers, .count = COUNT};
    for (int i = 0; i < 2; i++) add_on_the_host(b, &device, &n);
    if (b->capture_begin) {
        backend_graph graph;
        assert_int_equal(b->capture_begin(b, &err), STATUS_OK);
        add_on_the_host(b, &device, &n);
        assert_int_equal(b->capture_end(b, &graph, &err), STATUS_OK);
        for (; adds < 5; adds++) b->graph_launch(b, graph);
        assert_int_equal(b->stream_synchronize(b, NULL, &err), STATUS_OK);
        b->graph_destroy(b, graph);
    }
    tensor_download(&device);
    assert_int_equal(n.calls, adds);
    for (int i = 0; i < COUNT; i++) assert_int_equal(((const int32_t *)device.host)[i], before[i] + adds);
    b->memory_free(b, MEMORY_HOST_PINNED, numbers, sizeof before);
    tensor_free(&device);
}

/* Workspace for matmuls of up to num_tokens tokens and in_features input features. */
static void workspace_for(struct test_backend *tb, int32_t num_tokens, int64_t in_features)
{
    const struct workspace_query query = {.max_num_tokens = num_tokens,
                                          .max_num_seqs = 1,
                                          .max_model_len = 16,
                                          .num_heads = 1,
                                          .head_size = 64,
                                          .block_size = 16,
                                          .max_in_features = in_features,
                                          .vocab_size = 16};
    use_workspace(tb, &query);
}

struct linear_case {
    int32_t num_tokens;
    int64_t out_features, in_features;
    enum dtype dtype, w_dtype, bias_dtype, out_dtype;
    bool bias;
    int64_t x_pad, out_pad; /* elements between tokens: NaN in x, left alone in out */
};

static void check_linear(struct test_backend *tb, struct random *random, const struct linear_case *c)
{
    struct backend *b = tb->b;
    char what[200];
    const int64_t x_stride = c->in_features + c->x_pad, out_stride = c->out_features + c->out_pad;
    struct tensor x = tensor_poison(b, c->dtype, c->num_tokens * x_stride);
    struct tensor w = tensor_random(b, c->w_dtype, c->out_features * c->in_features, 1, random);
    struct tensor bias = tensor_random(b, c->bias_dtype, c->out_features, 3, random);
    struct tensor out = tensor_poison(b, c->out_dtype, c->num_tokens * out_stride);
    for (int64_t t = 0; t < c->num_tokens; t++)
        for (int64_t i = 0; i < c->in_features; i++) tensor_set(&x, t * x_stride + i, 2 * random_uniform(random) - 1);
    tensor_upload(&x);
    const struct weight weight = weight_of(&w, c->in_features, c->bias ? &bias : NULL);
    struct linear_args args = linear_of(&out, &x, &weight);
    args.num_tokens = c->num_tokens, args.out_stride = out_stride, args.x_stride = x_stride;
    b->linear(b, &args);
    tensor_download(&out);
    double *xs = tensor_rows(&x, c->num_tokens, c->in_features, x_stride), *ws = tensor_doubles(&w);
    double *biases = tensor_doubles(&bias),
           *expected = malloc(sizeof(double) * (size_t)(c->num_tokens * c->out_features + 1));
    reference_linear(expected, xs, ws, c->bias ? biases : NULL, c->num_tokens, c->out_features, c->in_features);
    snprintf(what, sizeof what, "linear: %d x %lld x %lld, %s %s, bias %s, to %s", c->num_tokens,
             (long long)c->out_features, (long long)c->in_features, dtype_name(c->dtype), dtype_name(c->w_dtype),
             c->bias ? dtype_name(c->bias_dtype) : "none", dtype_name(c->out_dtype));
    tensor_close_up(tb, &out, c->num_tokens, c->out_features, out_stride);
    check_close(tb, what, &out, expected, c->num_tokens * c->out_features, c->out_dtype);
    check_workspace(tb);
    free(xs), free(ws), free(biases), free(expected);
    tensor_free(&x), tensor_free(&w), tensor_free(&bias), tensor_free(&out);
}

/* Rows by several weights that lie one behind the other; two rows at either end belong to none. */
static void check_segments(struct test_backend *tb, struct random *random, const struct linear_case *c,
                           const int32_t *sizes, int32_t count)
{
    enum { MAX_SEGMENTS = 64 };
    struct backend *b = tb->b;
    int32_t starts[MAX_SEGMENTS + 1] = {2};
    for (int32_t s = 0; s < count; s++) starts[s + 1] = starts[s] + sizes[s];
    const int32_t num_tokens = starts[count] + 2;
    const int64_t n = c->in_features, m = c->out_features;
    struct tensor x = tensor_random(b, c->dtype, num_tokens * n, 1, random);
    struct tensor w = tensor_random(b, c->w_dtype, count * m * n, 1, random);
    struct tensor bias = tensor_random(b, c->bias_dtype, count * m, 3, random);
    struct tensor out = tensor_poison(b, c->out_dtype, num_tokens * m);
    struct tensor device_starts = tensor_bytes(b, starts, (count + 1) * (int64_t)sizeof *starts);
    struct weight weight = weight_of(&w, n, c->bias ? &bias : NULL);
    weight.out_features = m;
    struct linear_args args = linear_of(&out, &x, &weight);
    args.segments = (struct row_segments){device_starts.data, count};
    b->linear(b, &args);
    tensor_download(&out);
    double *xs = tensor_doubles(&x), *ws = tensor_doubles(&w), *biases = tensor_doubles(&bias);
    double *sums = malloc(sizeof *sums * (size_t)out.count);
    for (int32_t s = 0; s < count; s++)
        reference_linear(sums + starts[s] * m, xs + starts[s] * n, ws + s * m * n, c->bias ? biases + s * m : NULL,
                         sizes[s], m, n);
    for (int64_t i = 0; i < out.count; i++) {
        if (i / m >= starts[0] && i / m < starts[count]) continue;
        assert_true(isnan(tensor_get(&out, i)));
        tensor_set(&out, i, sums[i] = 0);
    }
    char what[200];
    snprintf(what, sizeof what, "linear of %d segments of %d rows, %lld x %lld, %s %s to %s", count, num_tokens,
             (long long)m, (long long)n, dtype_name(c->dtype), dtype_name(c->w_dtype), dtype_name(c->out_dtype));
    check_close(tb, what, &out, sums, out.count, c->out_dtype);
    check_workspace(tb);
    free(xs), free(ws), free(biases), free(sums);
    tensor_free(&x), tensor_free(&w), tensor_free(&bias), tensor_free(&out), tensor_free(&device_starts);
}

/* Numbers of tokens on both sides of every kernel's limit. */
static void linear_of_few_and_many_tokens(struct test_backend *tb, struct random *random)
{
    static const int32_t counts[] = {1,  2,  3,  4,  5,  6,  7,  8,  13, 14, 15, 16,  17,
                                     18, 20, 27, 28, 29, 32, 33, 42, 63, 64, 65, 100, 257};
    workspace_for(tb, 257, 300);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int t = 0; t < 3; t++) {
            const struct linear_case c = {.num_tokens = counts[i],
                                          .out_features = 196,
                                          .in_features = 272,
                                          .w_dtype = types[t],
                                          .bias_dtype = types[(t + (int)i / 2) % 3],
                                          .bias = i % 2 == 0,
                                          .x_pad = i % 3,
                                          .out_pad = i % 4};
            check_linear(tb, random, &c);
        }
}

/* Segments of no row, of all rows, and more segments than rows. */
static void linear_of_segments(struct test_backend *tb, struct random *random)
{
    static const int32_t sizes[][40] = {
        {0, 1, 7, 130}, {0, 0, 138, 0}, {70}, {[3] = 1, [17] = 2, [39] = 1}, {3, 1, 0, 5}};
    static const int32_t counts[] = {4, 4, 1, 40, 4};
    workspace_for(tb, 160, 520);
    for (int i = 0; i < 5 * 3 * 2; i++) {
        const enum dtype dtype = types[i % 3], other = i % 5 == 4 ? DTYPE_FLOAT32 : dtype;
        const struct linear_case c = {.out_features = i % 2 ? 200 : 77,
                                      .in_features = i % 7 == 6 ? 515 : 520,
                                      .dtype = dtype,
                                      .w_dtype = i % 11 == 10 ? DTYPE_BFLOAT16 : dtype,
                                      .bias_dtype = dtype,
                                      .out_dtype = other,
                                      .bias = i % 4 == 1};
        check_segments(tb, random, &c, sizes[i / 6], counts[i / 6]);
    }
}

static void linear_of_odd_sizes(struct test_backend *tb, struct random *random)
{
    workspace_for(tb, 40, 700);
    for (int i = 0; i < 60; i++) {
        const struct linear_case c = {.num_tokens = (int32_t)random_between(random, 1, 40),
                                      .out_features = random_between(random, 1, 200),
                                      .in_features = random_between(random, 1, i % 4 ? 80 : 700),
                                      .dtype = types[random_between(random, 0, 2)],
                                      .w_dtype = types[random_between(random, 0, 2)],
                                      .bias_dtype = types[random_between(random, 0, 2)],
                                      .out_dtype = types[random_between(random, 0, 2)],
                                      .bias = random_between(random, 0, 1) == 1,
                                      .x_pad = random_between(random, 0, 9),
                                      .out_pad = random_between(random, 0, 9)};
        check_linear(tb, random, &c);
    }
}

/* More tokens than are packed at once, and enough features for every loop of the blocking to run twice. */
static void linear_of_large_sizes(struct test_backend *tb, struct random *random)
{
    const struct linear_case cases[] = {
        {.num_tokens = 1100, .out_features = 70, .in_features = 96, .w_dtype = DTYPE_BFLOAT16},
        {.num_tokens = 60, .out_features = 300, .in_features = 1030, .w_dtype = DTYPE_FLOAT16, .bias = true},
        {.num_tokens = 33,
         .out_features = 520,
         .in_features = 600,
         .dtype = DTYPE_BFLOAT16,
         .w_dtype = DTYPE_BFLOAT16,
         .out_dtype = DTYPE_BFLOAT16},
        {.num_tokens = 1, .out_features = 2000, .in_features = 2048, .w_dtype = DTYPE_BFLOAT16, .bias = true},
        {.num_tokens = 9, .out_features = 1001, .in_features = 768, .w_dtype = DTYPE_FLOAT16},
        {.num_tokens = 5, .out_features = 70, .in_features = 2048, .w_dtype = DTYPE_FLOAT32, .bias = true},
        {.num_tokens = 24, .out_features = 131, .in_features = 2047, .w_dtype = DTYPE_BFLOAT16},
        {.num_tokens = 31, .out_features = 40, .in_features = 1025, .w_dtype = DTYPE_FLOAT16},
    };
    workspace_for(tb, 1100, 2048);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_linear(tb, random, &cases[i]);
}

/* An infinite x gives an infinite result, and NaN gives NaN, to its own token alone. */
static void linear_keeps_infinity(struct test_backend *tb, struct random *random)
{
    enum { TOKENS = 40, OUT = 64, IN = 96 };
    struct tensor x = tensor_random(tb->b, DTYPE_FLOAT32, TOKENS * IN, 1, random);
    struct tensor w = tensor_poison(tb->b, DTYPE_BFLOAT16, OUT * IN);
    struct tensor out = tensor_poison(tb->b, DTYPE_FLOAT32, TOKENS * OUT);
    for (int i = 0; i < OUT * IN; i++) tensor_set(&w, i, 1 + random_uniform(random));
    tensor_set(&x, 3 * IN + 50, INFINITY), tensor_set(&x, 37 * IN, (double)NAN);
    tensor_upload(&x), tensor_upload(&w);
    const struct weight weight = weight_of(&w, IN, NULL);
    struct linear_args args = linear_of(&out, &x, &weight);
    args.num_tokens = TOKENS, args.x_stride = IN, args.out_stride = OUT;
    workspace_for(tb, TOKENS, IN);
    tb->b->linear(tb->b, &args);
    tensor_download(&out);
    for (int t = 0; t < TOKENS; t++)
        for (int i = 0; i < OUT; i++) {
            const double value = tensor_get(&out, t * OUT + i);
            if (t == 3) assert_true(isinf(value) && value > 0);
            if (t == 37) assert_true(isnan(value));
            if (t != 3 && t != 37) assert_true(isfinite(value));
        }
    tensor_free(&x), tensor_free(&w), tensor_free(&out);
}

/* Results are right even if the workspace was made for smaller shapes. */
static void linear_with_a_small_workspace(struct test_backend *tb, struct random *random)
{
    if (tb->b->discrete) return;
    const struct linear_case c = {.num_tokens = 100, .out_features = 90, .in_features = 500, .w_dtype = DTYPE_BFLOAT16};
    workspace_for(tb, 1, 64);
    check_linear(tb, random, &c);
}

/* Matmuls of the same x in one loop, with a bias in some; more tokens than that is for, or other types, are not taken.
 */
static void linear_of_parts(struct test_backend *tb, struct random *random)
{
    enum { IN = 300 };
    static const int64_t out_features[] = {130, 1, 67};
    static const enum dtype dtypes[] = {DTYPE_FLOAT32, DTYPE_FLOAT16, DTYPE_BFLOAT16};
    workspace_for(tb, 100, IN);
    for (int k = 0; k < 3; k++) {
        struct tensor w[3], bias = tensor_random(tb->b, DTYPE_FLOAT32, out_features[0], 3, random);
        struct weight weights[3];
        for (int i = 0; i < 3; i++) {
            w[i] = tensor_random(tb->b, dtypes[k], out_features[i] * IN, 1, random);
            weights[i] = weight_of(&w[i], IN, i == 0 ? &bias : NULL);
        }
        struct weight other = weights[1];
        other.format = weight_format_of(dtypes[(k + 1) % 3]);
        for (int32_t tokens = 1; tokens <= 100; tokens += 3) {
            struct tensor x = tensor_random(tb->b, dtypes[tokens % 3], tokens * IN, 1, random);
            check_linear_parts(tb, (const struct weight *[]){&weights[0], &other, &weights[2]}, 3, &x, false);
            if (tokens <= 10 || tokens == 100)
                check_linear_parts(tb, (const struct weight *[]){&weights[0], &weights[1], &weights[2]}, 3, &x,
                                   tokens <= 10 && !tb->b->discrete);
            tensor_free(&x);
        }
        for (int i = 0; i < 3; i++) tensor_free(&w[i]);
        tensor_free(&bias);
    }
}

/* The result of a token is the same to rounding, whatever other tokens are in the call. */
static void linear_tokens_are_independent(struct test_backend *tb, struct random *random)
{
    enum { TOKENS = 64, OUT = 96, IN = 512 };
    struct tensor x = tensor_random(tb->b, DTYPE_FLOAT32, TOKENS * IN, 1, random);
    struct tensor w = tensor_random(tb->b, DTYPE_BFLOAT16, OUT * IN, 1, random);
    struct tensor all = tensor_poison(tb->b, DTYPE_FLOAT32, TOKENS * OUT);
    struct tensor one = tensor_poison(tb->b, DTYPE_FLOAT32, OUT);
    const struct weight weight = weight_of(&w, IN, NULL);
    struct linear_args args = linear_of(&all, &x, &weight);
    workspace_for(tb, TOKENS, IN);
    tb->b->linear(tb->b, &args);
    args.out = one.data, args.x = (float *)x.data + 37 * IN, args.num_tokens = 1;
    tb->b->linear(tb->b, &args);
    tensor_download(&all), tensor_download(&one);
    double difference = 0, norm = 0;
    for (int i = 0; i < OUT; i++) {
        difference += pow(tensor_get(&one, i) - tensor_get(&all, 37 * OUT + i), 2);
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
        const struct rms_norm_args norm = rms_norm_of(&out, &x, &gain);
        tb->b->rms_norm(tb->b, &norm);
        tensor_download(&out);
        reference_rms_norm(expected, xs, gains, 1e-5, tokens, size);
        check_close(tb, "rms_norm", &out, expected, out.count, dtype);
        struct tensor *target = i % 4 < 2 ? &out : &x; /* out may be x */
        struct fused_add_rms_norm_args add = fused_add_rms_norm_of(target, &x, &residual, &gain);
        if (i % 5 == 0) add.multiplier = 0.22f;
        if (i % 7 == 0) add.sum_multiplier = 0.6f;
        tb->b->fused_add_rms_norm(tb->b, &add);
        tensor_download(target), tensor_download(&residual);
        for (int64_t j = 0; j < out.count; j++)
            residuals[j] = (double)add.sum_multiplier * (residuals[j] + (double)add.multiplier * xs[j]);
        check_close(tb, "fused_add_rms_norm's residual", &residual, residuals, out.count, dtype);
        reference_rms_norm(expected, residuals, gains, 1e-5, tokens, size);
        check_close(tb, "fused_add_rms_norm", target, expected, out.count, dtype);
        free(xs), free(residuals), free(gains), free(expected);
        tensor_free(&x), tensor_free(&residual), tensor_free(&gain), tensor_free(&out);
    }
}

/* Rows that are far from 0, so that the mean matters and squares of x alone would lose the variance; with and without a
 * bias. */
static void layer_norms(struct test_backend *tb, struct random *random)
{
    static const int32_t sizes[] = {1, 7, 64, 511, 513, 2048, 4100, 20000};
    for (int i = 0; i < 8 * 9; i++) {
        const enum dtype dtype = types[i % 3], gain_dtype = types[i / 3 % 3];
        const int32_t size = sizes[i / 9], tokens = i % 2 ? 1 : 5;
        struct tensor x = tensor_random(tb->b, dtype, (int64_t)tokens * size, 1, random);
        struct tensor gain = tensor_random(tb->b, gain_dtype, size, 1, random);
        struct tensor bias = tensor_random(tb->b, types[i / 2 % 3], size, 2, random);
        struct tensor out = tensor_poison(tb->b, dtype, x.count), *target = i % 4 < 2 ? &out : &x;
        for (int64_t j = 0; j < x.count; j++) tensor_set(&x, j, tensor_get(&x, j) + (j / size % 2 ? 16 : -12));
        tensor_upload(&x);
        double *xs = tensor_doubles(&x), *gains = tensor_doubles(&gain), *biases = tensor_doubles(&bias);
        double *expected = malloc(sizeof(double) * (size_t)out.count);
        const bool biased = random_between(random, 0, 1);
        struct rms_norm_args norm = rms_norm_of(target, &x, &gain);
        norm.norm.type = NORM_LAYER;
        if (biased) norm.norm.bias = bias.data, norm.norm.bias_dtype = bias.dtype;
        tb->b->rms_norm(tb->b, &norm);
        tensor_download(target);
        reference_layer_norm(expected, xs, gains, biased ? biases : NULL, 1e-5, tokens, size);
        if (size > 1 || biased) check_close(tb, "LayerNorm", target, expected, out.count, dtype);
        for (int64_t j = 0; j < out.count && size == 1 && !biased; j++) assert_true(tensor_get(target, j) == 0);
        free(xs), free(gains), free(biases), free(expected);
        tensor_free(&x), tensor_free(&gain), tensor_free(&bias), tensor_free(&out);
    }
}

/* What fused_add_rms_norm is called with beyond a plain RMSNorm. */
struct addition_case {
    int32_t tokens, size;
    enum dtype dtype, post_gain_dtype, gain_dtype;
    enum norm_type post_type, type;
    bool has_post_norm, has_out, in_place; /* in_place: out is x */
    bool biased;                           /* LayerNorms */
    float multiplier;
};

/* The operands of one way to compute it. */
struct addition {
    struct tensor x, residual, out;
    struct fused_add_rms_norm_args args;
};

static struct tensor copy_of(const struct tensor *t)
{
    struct tensor copy = tensor_bytes(t->b, t->host, t->bytes);
    copy.dtype = t->dtype;
    copy.count = t->count;
    return copy;
}

static struct addition addition_of(const struct addition_case *c, const struct tensor *x, const struct tensor *residual,
                                   const struct tensor *gain)
{
    struct addition a = {copy_of(x), copy_of(residual), tensor_poison(x->b, x->dtype, x->count), {0}};
    a.args = fused_add_rms_norm_of(&a.out, &a.x, &a.residual, gain);
    a.args.multiplier = c->multiplier;
    if (c->multiplier != 1) a.args.sum_multiplier = 0.6f;
    return a;
}

static void addition_free(struct addition *a)
{
    tensor_free(&a->x), tensor_free(&a->residual), tensor_free(&a->out);
}

/* A norm whose bias is what other norms have as gains. */
static struct norm_params addition_norm(const struct addition_case *c, enum norm_type type, const struct tensor *gain,
                                        const struct tensor *bias)
{
    struct norm_params norm = norm_of(gain);
    norm.type = type;
    if (c->biased && type == NORM_LAYER) norm.bias = bias->data, norm.bias_dtype = bias->dtype;
    return norm;
}

/* Computes the addition by operations that norms() and layer_norms() compare with float64. */
static void add_one_by_one(struct backend *b, const struct addition_case *c, struct addition *a,
                           const struct norm_params *post_norm, const struct norm_params *last,
                           const struct tensor *gain)
{
    struct rms_norm_args norm = rms_norm_of(&a->x, &a->x, gain);
    norm.norm = *post_norm;
    if (c->has_post_norm) b->rms_norm(b, &norm);
    b->fused_add_rms_norm(b, &a->args);
    norm = rms_norm_of(&a->out, &a->residual, gain);
    norm.norm = *last;
    b->rms_norm(b, &norm);
}

/* A fused operation gives the bits that one operation after the other gives. */
static void check_addition(struct test_backend *tb, struct random *random, const struct addition_case *c)
{
    const int64_t count = (int64_t)c->tokens * c->size;
    struct tensor x = tensor_random(tb->b, c->dtype, count, 3, random);
    struct tensor residual = tensor_random(tb->b, c->dtype, count, 3, random);
    struct tensor post_gain = tensor_random(tb->b, c->post_gain_dtype, c->size, 2, random);
    struct tensor gain = tensor_random(tb->b, c->gain_dtype, c->size, 1, random);
    struct norm_params post_norm = addition_norm(c, c->post_type, &post_gain, &gain);
    const struct norm_params last = addition_norm(c, c->type, &gain, &post_gain);
    post_norm.eps = 1e-2f;
    struct addition single = addition_of(c, &x, &residual, &gain), fused = addition_of(c, &x, &residual, &gain);
    add_one_by_one(tb->b, c, &single, &post_norm, &last, &gain);
    struct tensor *target = c->in_place ? &fused.x : &fused.out;
    fused.args.out = c->has_out ? target->data : NULL;
    fused.args.norm = last;
    if (!c->has_out) fused.args.norm = (struct norm_params){0};
    fused.args.post_norm = c->has_post_norm ? &post_norm : NULL;
    tb->b->fused_add_rms_norm(tb->b, &fused.args);
    tensor_download(&single.out), tensor_download(&single.residual);
    tensor_download(target), tensor_download(&fused.residual);
    assert_memory_equal(fused.residual.host, single.residual.host, (size_t)residual.bytes);
    if (c->has_out) assert_memory_equal(target->host, single.out.host, (size_t)residual.bytes);
    addition_free(&single), addition_free(&fused);
    tensor_free(&x), tensor_free(&residual), tensor_free(&post_gain), tensor_free(&gain);
}

/* Every combination of norms, before the addition and after it, in sizes up to more than a GPU's registers hold. */
static void adds_with_every_norm(struct test_backend *tb, struct random *random)
{
    static const int32_t sizes[] = {1, 7, 64, 513, 2048, 4100, 20000};
    for (int i = 0; i < 7 * 3 * 12; i++) {
        const struct addition_case c = {.tokens = i % 5 ? 3 : 1,
                                        .size = sizes[i / 36],
                                        .dtype = types[i % 3],
                                        .post_gain_dtype = types[random_between(random, 0, 2)],
                                        .gain_dtype = types[random_between(random, 0, 2)],
                                        .post_type = i / 3 % 2 ? NORM_LAYER : NORM_RMS,
                                        .type = i / 6 % 2 ? NORM_LAYER : NORM_RMS,
                                        .has_post_norm = i / 12 % 3 > 0,
                                        .has_out = i / 12 % 3 < 2,
                                        .in_place = i % 2 == 0,
                                        .biased = i / 2 % 2 == 0,
                                        .multiplier = i % 4 ? 1 : 0.22f};
        check_addition(tb, random, &c);
    }
    const struct addition_case alone = {.tokens = 3, .size = 2048, .dtype = DTYPE_BFLOAT16, .multiplier = 0.5f};
    check_addition(tb, random, &alone);
}

/* Rows with gaps, like the heads of a query in a fused QKV; the gaps stay as they were. In place too. */
static void check_strided_norm(struct test_backend *tb, struct random *random, enum dtype dtype, bool in_place)
{
    enum { TOKENS = 7, SIZE = 130, X_STRIDE = 400, OUT_STRIDE = 133 };
    struct tensor gain = tensor_random(tb->b, DTYPE_BFLOAT16, SIZE, 1, random);
    struct tensor x = tensor_poison(tb->b, dtype, TOKENS * X_STRIDE);
    struct tensor out = tensor_poison(tb->b, dtype, TOKENS * OUT_STRIDE);
    for (int64_t i = 0; i < (int64_t)TOKENS * SIZE; i++)
        tensor_set(&x, i / SIZE * X_STRIDE + i % SIZE, 4 * random_uniform(random) - 2);
    tensor_upload(&x);
    double *xs = tensor_rows(&x, TOKENS, SIZE, X_STRIDE), *gains = tensor_doubles(&gain), expected[TOKENS * SIZE];
    struct tensor *target = in_place ? &x : &out;
    struct rms_norm_args args = rms_norm_of(target, &x, &gain);
    args.num_tokens = TOKENS, args.x_stride = X_STRIDE, args.out_stride = in_place ? X_STRIDE : OUT_STRIDE;
    tb->b->rms_norm(tb->b, &args);
    tensor_download(target);
    reference_rms_norm(expected, xs, gains, 1e-5, TOKENS, SIZE);
    tensor_close_up(tb, target, TOKENS, SIZE, args.out_stride);
    check_close(tb, "rms_norm with strides", target, expected, TOKENS * SIZE, dtype);
    free(xs), free(gains);
    tensor_free(&gain), tensor_free(&x), tensor_free(&out);
}

static void norms_with_strides(struct test_backend *tb, struct random *random)
{
    for (int i = 0; i < 6; i++) check_strided_norm(tb, random, types[i % 3], i < 3);
}

static void norm_of_zeros_is_zero(struct test_backend *tb, struct random *random)
{
    struct tensor x = tensor_random(tb->b, DTYPE_FLOAT32, 256, 0, random);
    struct tensor gain = tensor_random(tb->b, DTYPE_FLOAT32, 256, 1, random);
    struct tensor out = tensor_poison(tb->b, DTYPE_FLOAT32, 256);
    const struct rms_norm_args args = rms_norm_of(&out, &x, &gain);
    tb->b->rms_norm(tb->b, &args);
    tensor_download(&out);
    for (int i = 0; i < 256; i++) assert_true(tensor_get(&out, i) == 0);
    tensor_free(&x), tensor_free(&gain), tensor_free(&out);
}

/* Query, key and value lie side by side; the value must stay as it was. */
static void check_rotary(struct test_backend *tb, struct random *random, enum dtype dtype, int32_t head_size,
                         int32_t rotary_dim, bool interleaved)
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
        double *row = expected + t * stride;
        reference_rotary(row, positions + t, tables, 1, HEADS, head_size, rotary_dim, interleaved);
        reference_rotary(row + q, positions + t, tables, 1, KV_HEADS, head_size, rotary_dim, interleaved);
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
                                     .interleaved = interleaved,
                                     .dtype = dtype};
    tb->b->rotary_embedding(tb->b, &args);
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
    for (int i = 0; i < 2 * 3; i++) {
        const bool interleaved = i / 3;
        check_rotary(tb, random, types[i % 3], 64, 64, interleaved);
        check_rotary(tb, random, types[i % 3], 128, 128, interleaved);
        check_rotary(tb, random, types[i % 3], 80, 32, interleaved); /* a part of the head */
        check_rotary(tb, random, types[i % 3], 120, 120, interleaved);
        check_rotary(tb, random, types[i % 3], 30, 18, interleaved);
    }
}

/* Query, key and value of HEADS_TOKENS tokens side by side; the gains of the two norms have different types. */
struct heads {
    struct tensor rows, query_gain, key_gain, table, positions;
    struct tensor bias; /* of LayerNorms */
    struct norm_params query_norm, key_norm;
    struct rotary_args args;
};

enum { HEADS_TOKENS = 9, HEADS_POSITIONS = 50 };

static struct heads heads_new(struct test_backend *tb, struct random *random, enum dtype dtype, int32_t head_size)
{
    enum { HEADS = 3, KV_HEADS = 2 };
    const int64_t stride = (HEADS + 2 * KV_HEADS) * head_size;
    int32_t positions[HEADS_TOKENS];
    for (int i = 0; i < HEADS_TOKENS; i++) positions[i] = (int32_t)random_between(random, 0, HEADS_POSITIONS - 1);
    struct heads h = {.rows = tensor_random(tb->b, dtype, HEADS_TOKENS * stride, 3, random),
                      .query_gain = tensor_random(tb->b, DTYPE_BFLOAT16, head_size, 2, random),
                      .key_gain = tensor_random(tb->b, DTYPE_FLOAT32, head_size, 2, random),
                      .table = tensor_random(tb->b, DTYPE_FLOAT32, (int64_t)HEADS_POSITIONS * head_size, 1, random),
                      .positions = tensor_bytes(tb->b, positions, sizeof positions),
                      .bias = tensor_random(tb->b, DTYPE_FLOAT16, head_size, 2, random)};
    h.query_norm = norm_of(&h.query_gain);
    h.key_norm = norm_of(&h.key_gain);
    h.args = (struct rotary_args){.query = h.rows.data,
                                  .key = (uint8_t *)h.rows.data + HEADS * head_size * dtype_size(dtype),
                                  .query_stride = stride,
                                  .key_stride = stride,
                                  .positions = h.positions.data,
                                  .cos_sin = h.table.data,
                                  .num_tokens = HEADS_TOKENS,
                                  .num_heads = HEADS,
                                  .num_kv_heads = KV_HEADS,
                                  .head_size = head_size,
                                  .rotary_dim = head_size,
                                  .dtype = dtype};
    return h;
}

static void heads_free(struct heads *h)
{
    tensor_free(&h->rows), tensor_free(&h->query_gain), tensor_free(&h->key_gain);
    tensor_free(&h->table), tensor_free(&h->positions), tensor_free(&h->bias);
}

/* Norms the heads by rms_norm: one call for each head, over all tokens. */
static void norm_heads_one_by_one(struct backend *b, const struct heads *h)
{
    const struct rotary_args *args = &h->args;
    for (int32_t i = 0; i < args->num_heads + args->num_kv_heads; i++) {
        uint8_t *head = (uint8_t *)args->query + (int64_t)i * args->head_size * dtype_size(args->dtype);
        const struct rms_norm_args norm = {.out = head,
                                           .x = head,
                                           .out_stride = args->query_stride,
                                           .x_stride = args->query_stride,
                                           .norm = i < args->num_heads ? h->query_norm : h->key_norm,
                                           .num_tokens = args->num_tokens,
                                           .size = args->head_size,
                                           .dtype = args->dtype};
        b->rms_norm(b, &norm);
    }
}

/* Computes the heads in float64: norm, then rotation; V stays. */
static void expect_heads(const struct heads *h, double *rows)
{
    const struct rotary_args *args = &h->args;
    const int32_t *positions = (const int32_t *)h->positions.host;
    double *gains[] = {tensor_doubles(&h->query_gain), tensor_doubles(&h->key_gain)},
           *table = tensor_doubles(&h->table), *bias = tensor_doubles(&h->bias);
    for (int64_t t = 0; t < args->num_tokens; t++)
        for (int64_t i = 0; i < args->num_heads + args->num_kv_heads; i++) {
            double *head = rows + t * args->query_stride + i * args->head_size;
            const double *gain = gains[i >= args->num_heads];
            if (h->query_norm.type == NORM_RMS)
                reference_rms_norm(head, head, gain, 1e-5, 1, args->head_size);
            else
                reference_layer_norm(head, head, gain, h->query_norm.bias ? bias : NULL, 1e-5, 1, args->head_size);
            reference_rotary(head, positions + t, table, 1, 1, args->head_size, args->rotary_dim, args->interleaved);
        }
    free(gains[0]), free(gains[1]), free(table), free(bias);
}

/* QK norm before the rotation: close to float64, and what rms_norm and rotary_embedding give one after the other: bit
 * for bit on the CPU; a GPU sums the squares of a head in another order. With rotary_dim 0 heads are only normed, and
 * there is no table. */
static void check_heads(struct test_backend *tb, struct random *random, enum dtype dtype, enum norm_type type,
                        int32_t head_size, int32_t rotary_dim, bool interleaved)
{
    struct backend *b = tb->b;
    struct heads h = heads_new(tb, random, dtype, head_size);
    h.query_norm.type = h.key_norm.type = type;
    if (type == NORM_LAYER && rotary_dim % 16 == 0) {
        h.query_norm.bias = h.key_norm.bias = h.bias.data;
        h.query_norm.bias_dtype = h.key_norm.bias_dtype = h.bias.dtype;
    }
    struct tensor before = tensor_bytes(b, h.rows.host, h.rows.bytes);
    double *expected = tensor_doubles(&h.rows);
    h.args.rotary_dim = rotary_dim;
    h.args.interleaved = interleaved;
    expect_heads(&h, expected);
    struct rotary_args fused = h.args;
    fused.query_norm = &h.query_norm, fused.key_norm = &h.key_norm;
    if (rotary_dim == 0) fused.cos_sin = NULL, fused.positions = NULL;
    b->rotary_embedding(b, &fused);
    tensor_download(&h.rows);
    check_close(tb, "rotary_embedding with QK norm", &h.rows, expected, h.rows.count, dtype);
    uint8_t *result = malloc((size_t)h.rows.bytes);
    memcpy(result, h.rows.host, (size_t)h.rows.bytes);
    memcpy(h.rows.host, before.host, (size_t)h.rows.bytes);
    tensor_upload(&h.rows);
    norm_heads_one_by_one(b, &h);
    if (rotary_dim > 0) b->rotary_embedding(b, &h.args);
    tensor_download(&h.rows);
    if (b->discrete) {
        double *single = tensor_doubles(&h.rows);
        memcpy(h.rows.host, result, (size_t)h.rows.bytes);
        check_close(tb, "QK norm, fused and single", &h.rows, single, h.rows.count, dtype);
        free(single);
    } else {
        assert_memory_equal(result, h.rows.host, (size_t)h.rows.bytes);
    }
    free(expected), free(result);
    tensor_free(&before), heads_free(&h);
}

static void norms_heads(struct test_backend *tb, struct random *random)
{
    for (int i = 0; i < 2 * 2 * 3; i++) {
        const bool interleaved = i / 3 % 2;
        const enum norm_type type = i / 6 ? NORM_LAYER : NORM_RMS;
        check_heads(tb, random, types[i % 3], type, 64, 64, interleaved);
        check_heads(tb, random, types[i % 3], type, 128, 128, interleaved);
        check_heads(tb, random, types[i % 3], type, 80, 32, interleaved); /* a part of the head */
        check_heads(tb, random, types[i % 3], type, 45, 18, interleaved);
        check_heads(tb, random, types[i % 3], type, 128, 0, interleaved); /* none of it */
    }
}

static void activates(struct test_backend *tb, struct random *random)
{
    static const int32_t sizes[] = {1, 5, 64, 512, 700, 3001};
    static const char *const names[] = {"silu", "gelu_tanh", "gelu"};
    for (int i = 0; i < 18; i++) {
        const int32_t size = sizes[i / 3], tokens = i % 2 ? 2 : 7;
        struct tensor x = tensor_random(tb->b, types[i % 3], 2 * (int64_t)tokens * size, i % 5 ? 4 : 200, random);
        struct tensor out = tensor_poison(tb->b, types[i % 3], (int64_t)tokens * size);
        double *xs = tensor_doubles(&x), *expected = malloc(sizeof(double) * (size_t)out.count);
        struct act_and_mul_args args = act_and_mul_of(&out, &x, tokens);
        for (int k = 0; k < 2 * NUM_GATE_ACTIVATIONS; k++) {
            args.activation = (enum activation)(k / 2);
            args.limit = k % 2 ? 0.75f : 0;
            tb->b->act_and_mul(tb->b, &args);
            tensor_download(&out);
            reference_act_and_mul(expected, xs, tokens, size, args.activation, (double)args.limit);
            check_close(tb, names[args.activation], &out, expected, out.count, types[i % 3]);
        }
        free(xs), free(expected);
        tensor_free(&x), tensor_free(&out);
    }
}

/* Gates side by side, and ups that have a stride. */
static void activates_apart(struct test_backend *tb, struct random *random)
{
    static const int32_t sizes[] = {1, 64, 700};
    enum { TOKENS = 3 };
    for (int i = 0; i < 9; i++) {
        const int32_t size = sizes[i / 3];
        const enum dtype dtype = types[i % 3];
        struct tensor gates = tensor_random(tb->b, dtype, (int64_t)TOKENS * size, 4, random);
        struct tensor ups = tensor_random(tb->b, dtype, 3 * (int64_t)TOKENS * size, 4, random);
        double *both = malloc(sizeof(double) * 2 * (size_t)gates.count),
               *expected = malloc(2 * sizeof *both * (size_t)gates.count);
        for (int64_t k = 0; k < gates.count; k++) {
            both[k / size * 2 * size + k % size] = tensor_get(&gates, k);
            both[k / size * 2 * size + size + k % size] = tensor_get(&ups, k / size * 3 * size + size + k % size);
        }
        const struct act_and_mul_args args = {.out = gates.data,
                                              .gate_up = gates.data,
                                              .up = (char *)ups.data + (int64_t)size * dtype_size(dtype),
                                              .up_stride = 3 * (int64_t)size,
                                              .activation = (enum activation)(i % 3),
                                              .limit = i % 2 ? 0.75f : 0,
                                              .num_tokens = TOKENS,
                                              .size = size,
                                              .dtype = dtype};
        tb->b->act_and_mul(tb->b, &args);
        tensor_download(&gates);
        reference_act_and_mul(expected, both, TOKENS, size, args.activation, (double)args.limit);
        check_close(tb, "act_and_mul of ups apart", &gates, expected, gates.count, dtype);
        free(both), free(expected);
        tensor_free(&gates), tensor_free(&ups);
    }
}

/* The cases include in place, and an eps of xIELU that bounds many values. */
static void activates_without_a_gate(struct test_backend *tb, struct random *random)
{
    static const struct xielu_params params[] = {{0.8f, 1.1f, 0.5f, -1e-6f}, {0.3f, 0.9f, 0.25f, -0.5f}};
    static const int32_t sizes[] = {1, 5, 64, 512, 700, 3001};
    for (int i = 0; i < 18 * NUM_ACTIVATIONS; i++) {
        const enum dtype dtype = types[i % 3];
        const int32_t size = sizes[i / 3 % 6], tokens = i % 2 ? 2 : 7;
        struct tensor x = tensor_random(tb->b, dtype, (int64_t)tokens * size, i % 5 ? 4 : 60, random);
        struct tensor poison = tensor_poison(tb->b, dtype, x.count), *out = i % 4 ? &poison : &x;
        double *expected = tensor_doubles(&x);
        struct activate_args args = activate_of(out, &x, tokens);
        args.activation = (enum activation)(i / 18);
        args.xielu = params[i / 3 % 2];
        tb->b->activate(tb->b, &args);
        tensor_download(out);
        for (int64_t k = 0; k < x.count; k++)
            expected[k] = reference_activate(expected[k], args.activation, &args.xielu);
        check_close(tb, "activate", out, expected, x.count, dtype);
        free(expected);
        tensor_free(&x), tensor_free(&poison);
    }
}

/* As they are, scaled, and with learned positions. */
static void embeds(struct test_backend *tb, struct random *random)
{
    enum { TOKENS = 6, VOCABULARY = 40, COLUMNS = 515, OFFSET = 2 };
    const int32_t positions[TOKENS] = {0, 5, 37, 1, 5, 12};
    const int32_t ids[TOKENS] = {3, -1, 39, -3, 0, -2}, sampled[3] = {7, 11, 38}, are[TOKENS] = {3, 7, 39, 38, 0, 11};
    struct tensor ids_on = tensor_bytes(tb->b, ids, sizeof ids),
                  sampled_on = tensor_bytes(tb->b, sampled, sizeof sampled),
                  positions_on = tensor_bytes(tb->b, positions, sizeof positions);
    for (int i = 0; i < 9; i++) {
        struct tensor table = tensor_random(tb->b, types[i % 3], VOCABULARY * COLUMNS, 1, random);
        struct tensor places = tensor_random(tb->b, types[i % 3], VOCABULARY * COLUMNS, 1, random);
        struct tensor out = tensor_poison(tb->b, types[i / 3], TOKENS * COLUMNS);
        const struct weight weight = weight_of(&table, COLUMNS, NULL), learned = weight_of(&places, COLUMNS, NULL);
        struct embedding_args args = embedding_of(&out, &ids_on, &sampled_on, &weight);
        double *expected = malloc(sizeof(double) * TOKENS * COLUMNS);
        for (int k = 0; k < 4; k++) {
            args.multiplier = k % 2 ? 22.625f : 1;
            args.position_table = k / 2 ? &learned : NULL;
            args.positions = positions_on.data;
            args.position_offset = OFFSET;
            tb->b->embedding(tb->b, &args);
            tensor_download(&out);
            for (int64_t t = 0; t < TOKENS; t++)
                for (int64_t c = 0; c < COLUMNS; c++)
                    expected[t * COLUMNS + c] =
                        (double)args.multiplier * tensor_get(&table, are[t] * COLUMNS + c) +
                        (k / 2 ? tensor_get(&places, (positions[t] + OFFSET) * COLUMNS + c) : 0);
            check_close(tb, "embedding", &out, expected, out.count, types[i / 3]);
        }
        free(expected);
        tensor_free(&table), tensor_free(&places), tensor_free(&out);
    }
    tensor_free(&ids_on), tensor_free(&sampled_on), tensor_free(&positions_on);
}

static void gathers_rows(struct test_backend *tb, struct random *random)
{
    const int32_t rows[5] = {6, 0, 3, 3, 1};
    struct tensor rows_on = tensor_bytes(tb->b, rows, sizeof rows);
    for (int i = 0; i < 3; i++) {
        struct tensor x = tensor_random(tb->b, types[i], 7 * 33, 1, random),
                      out = tensor_poison(tb->b, types[i], 5 * 33);
        const struct gather_rows_args args = gather_rows_of(&out, &x, &rows_on);
        tb->b->gather_rows(tb->b, &args);
        tensor_download(&out);
        const size_t bytes = 33 * (size_t)dtype_size(types[i]);
        for (size_t r = 0; r < 5; r++)
            assert_memory_equal(out.host + r * bytes, x.host + (size_t)rows[r] * bytes, bytes);
        tensor_free(&x), tensor_free(&out);
    }
    tensor_free(&rows_on);
}

/* Rows that are parts of longer ones: columns [3, 3 + size) of x become columns [1, 1 + size) of out. Without indices
 * they are taken in order, and a row of an index below 0 stays as it is. */
static void gathers_parts_of_rows(struct test_backend *tb, struct random *random)
{
    enum { ROWS = 5, OUT_STRIDE = 64, X_STRIDE = 80 };
    static const int32_t sizes[] = {33, 40, 56}, rows[ROWS] = {6, -1, 3, -7, 1}, in_order[ROWS] = {0, 1, 2, 3, 4};
    struct tensor rows_on = tensor_bytes(tb->b, rows, sizeof rows);
    for (int i = 0; i < 3 * 3 * 2; i++) {
        const enum dtype dtype = types[i % 3];
        const int64_t size = sizes[i / 3 % 3], element = dtype_size(dtype), first = i / 3 % 3 == 1 ? 8 : 1;
        const int32_t *from = i < 9 ? rows : in_order;
        struct tensor x = tensor_random(tb->b, dtype, 7 * X_STRIDE, 1, random),
                      out = tensor_random(tb->b, dtype, ROWS * OUT_STRIDE, 1, random);
        char *expected = malloc((size_t)out.bytes);
        memcpy(expected, out.host, (size_t)out.bytes);
        for (int64_t r = 0; r < ROWS; r++)
            if (from[r] >= 0)
                memcpy(expected + (r * OUT_STRIDE + first) * element,
                       x.host + (from[r] * X_STRIDE + 2 * first) * element, (size_t)(size * element));
        const struct gather_rows_args args = {.out = (char *)out.data + first * element,
                                              .x = (char *)x.data + 2 * first * element,
                                              .out_stride = OUT_STRIDE,
                                              .x_stride = X_STRIDE,
                                              .indices = from == rows ? rows_on.data : NULL,
                                              .num_indices = ROWS,
                                              .size = (int32_t)size,
                                              .dtype = dtype};
        tb->b->gather_rows(tb->b, &args);
        tensor_download(&out);
        assert_memory_equal(out.host, expected, (size_t)out.bytes);
        free(expected);
        tensor_free(&x), tensor_free(&out);
    }
    tensor_free(&rows_on);
}

static void scatters_logits(struct test_backend *tb, struct random *random)
{
    enum { SAMPLES = 3, VOCABULARY = 5001, IDS = 1700 };
    int32_t ids[IDS];
    for (int32_t i = 0; i < IDS; i++) ids[i] = (i * 1931 + 17) % VOCABULARY; /* 1931 and 5001 have no common divisor */
    struct tensor ids_on = tensor_bytes(tb->b, ids, sizeof ids);
    struct tensor logits = tensor_random(tb->b, DTYPE_FLOAT32, SAMPLES * IDS, 50, random);
    struct tensor out = tensor_poison(tb->b, DTYPE_FLOAT32, SAMPLES * VOCABULARY);
    float *expected = malloc((size_t)out.bytes);
    for (int i = 0; i < SAMPLES * VOCABULARY; i++) expected[i] = -INFINITY;
    for (int i = 0; i < SAMPLES * IDS; i++)
        expected[i / IDS * VOCABULARY + ids[i % IDS]] = (float)tensor_get(&logits, i);
    const struct scatter_logits_args args = {.out = out.data,
                                             .logits = logits.data,
                                             .ids = ids_on.data,
                                             .num_samples = SAMPLES,
                                             .num_ids = IDS,
                                             .vocab_size = VOCABULARY};
    tb->b->scatter_logits(tb->b, &args);
    tensor_download(&out);
    assert_memory_equal(out.host, expected, (size_t)out.bytes);
    free(expected);
    tensor_free(&ids_on), tensor_free(&logits), tensor_free(&out);
}

static void scales_logits(struct test_backend *tb, struct random *random)
{
    enum { SAMPLES = 3, VOCABULARY = 1001, COUNT = SAMPLES * VOCABULARY };
    static const float settings[][2] = {{1, 30}, {0.125f, 0}, {0.125f, 30}, {3, 1}};
    for (int i = 0; i < 4; i++) {
        struct tensor logits = tensor_random(tb->b, DTYPE_FLOAT32, COUNT, i % 2 ? 0.01 : 50, random);
        double *expected = tensor_doubles(&logits);
        const double multiplier = (double)settings[i][0], cap = (double)settings[i][1];
        for (int j = 0; j < COUNT; j++)
            expected[j] = cap > 0 ? cap * tanh(expected[j] * multiplier / cap) : expected[j] * multiplier;
        const struct scale_logits_args args = {.logits = logits.data,
                                               .num_samples = SAMPLES,
                                               .vocab_size = VOCABULARY,
                                               .multiplier = settings[i][0],
                                               .soft_cap = settings[i][1]};
        tb->b->scale_logits(tb->b, &args);
        tensor_download(&logits);
        check_close(tb, "scale_logits", &logits, expected, COUNT, DTYPE_FLOAT32);
        free(expected);
        tensor_free(&logits);
    }
}

static void updates_block_tables(struct test_backend *tb, struct random *random)
{
    (void)random;
    int32_t table[2 * 4 * 10];
    const struct block_table_delta deltas[] = {{0, 3, 9, 77}, {1, 0, 0, 5}, {0, 1, 4, 6}, {1, 2, 3, 9}, {0, 1, 4, 8}};
    for (int i = 0; i < 80; i++) table[i] = -i;
    struct tensor table_on = tensor_bytes(tb->b, table, sizeof table);
    struct tensor deltas_on = tensor_bytes(tb->b, deltas, sizeof deltas);
    struct update_block_tables_args args = {.block_tables = table_on.data,
                                            .block_table_stride = 10,
                                            .group_stride = 40,
                                            .deltas = deltas_on.data,
                                            .num_deltas = 4};
    tb->b->update_block_tables(tb->b, &args);
    args.deltas += 4, args.num_deltas = 1;
    tb->b->update_block_tables(tb->b, &args);
    args.num_deltas = 0;
    tb->b->update_block_tables(tb->b, &args);
    table[39] = 77, table[40] = 5, table[14] = 8, table[63] = 9;
    tensor_download(&table_on);
    assert_memory_equal(table_on.host, table, sizeof table);
    tensor_free(&table_on), tensor_free(&deltas_on);
}

enum { STORED_TOKENS = 21, STORED_HEADS = 2, STORED_BLOCKS = 9 };

/* A cache that is all NaN, and what it should hold after tokens were stored in shuffled slots. */
struct stored {
    enum dtype dtype, cache;
    int32_t head_size, v_head_size, block_size;
    int64_t block_stride;
    float kv_scales[2];
    struct tensor fused; /* query, key and value of each token */
    struct tensor k, v;
    uint8_t *k_expected, *v_expected;
    int64_t slots[STORED_TOKENS];
};

/* Elements from one token to the next. */
static int64_t stored_stride(const struct stored *s)
{
    return (int64_t)STORED_HEADS * (2 * s->head_size + s->v_head_size) + 7;
}

/* Distinct slots; some tokens have none. */
static void choose_slots(struct stored *s)
{
    for (int64_t t = 0; t < STORED_TOKENS; t++) {
        const int64_t slot = (t * 3 * s->block_size + t) % ((int64_t)STORED_BLOCKS * s->block_size);
        s->slots[t] = t % 5 == 3 ? -1 : slot;
        for (int64_t earlier = 0; earlier < t && s->slots[t] >= 0; earlier++)
            if (s->slots[earlier] == slot) s->slots[t] = -1;
    }
}

/* One element of a cache: converted by tensor_set on the host, and the result kept as expected. */
static void expect_element(struct tensor *cache, uint8_t *expected, int64_t index, double value)
{
    const int64_t size = dtype_size(cache->dtype);
    tensor_set(cache, index, value);
    memcpy(expected + index * size, cache->host + index * size, (size_t)size);
}

static void expect_token(struct stored *s, int64_t t)
{
    const int64_t head_size = s->head_size, block_size = s->block_size, x = 16 / dtype_size(s->cache);
    const int64_t row = STORED_HEADS * head_size, block = s->slots[t] / block_size, offset = s->slots[t] % block_size;
    const int64_t keys = t * stored_stride(s) + row, start = block * s->block_stride;
    for (int64_t h = 0; h < STORED_HEADS && s->slots[t] >= 0; h++) {
        for (int64_t d = 0; d < head_size; d++)
            expect_element(&s->k, s->k_expected,
                           start + h * head_size * block_size + (d / x * block_size + offset) * x + d % x,
                           tensor_get(&s->fused, keys + h * head_size + d) / (double)s->kv_scales[0]);
        for (int64_t d = h * s->v_head_size; d < (h + 1) * s->v_head_size; d++)
            expect_element(&s->v, s->v_expected, start + d * block_size + offset,
                           tensor_get(&s->fused, keys + row + d) / (double)s->kv_scales[1]);
    }
}

static void store_tokens(struct test_backend *tb, struct stored *s)
{
    const int64_t row = STORED_HEADS * (int64_t)s->head_size * dtype_size(s->dtype);
    struct tensor slots = tensor_bytes(tb->b, s->slots, sizeof s->slots);
    struct tensor scales = tensor_bytes(tb->b, s->kv_scales, sizeof s->kv_scales);
    const struct reshape_and_cache_args args = {.key = (uint8_t *)s->fused.data + row,
                                                .value = (uint8_t *)s->fused.data + 2 * row,
                                                .kv_stride = stored_stride(s),
                                                .k_cache = s->k.data,
                                                .v_cache = s->v.data,
                                                .slot_mapping = slots.data,
                                                .num_tokens = STORED_TOKENS,
                                                .num_kv_heads = STORED_HEADS,
                                                .head_size = s->head_size,
                                                .v_head_size = s->v_head_size,
                                                .block_size = s->block_size,
                                                .block_stride = s->block_stride,
                                                .dtype = s->dtype,
                                                .cache_dtype = s->cache,
                                                .kv_scales = scales.data};
    tb->b->reshape_and_cache(tb->b, &args);
    tensor_download(&s->k), tensor_download(&s->v);
    tensor_free(&slots), tensor_free(&scales);
}

/* Slots that no token is stored in stay as they were, and so does what lies between blocks. */
static void check_reshape(struct test_backend *tb, struct random *random, struct stored *s)
{
    const int64_t count = STORED_BLOCKS * s->block_stride;
    s->kv_scales[0] = dtype_size(s->cache) == 1 ? 0.25f : 1;
    s->kv_scales[1] = dtype_size(s->cache) == 1 ? 0.5f : 1;
    s->fused = tensor_random(tb->b, s->dtype, STORED_TOKENS * stored_stride(s), 1, random);
    for (int64_t i = 0; i < s->fused.count; i += 7) /* zeros of both signs, and numbers that no 8-bit float holds */
        tensor_set(&s->fused, i, i % 3 == 0 ? 0.0 : i % 3 == 1 ? -0.0 : ldexp(1, -(int)(i % 30)));
    tensor_upload(&s->fused);
    s->k = tensor_poison(tb->b, s->cache, count), s->v = tensor_poison(tb->b, s->cache, count);
    s->k_expected = malloc((size_t)s->k.bytes), s->v_expected = malloc((size_t)s->v.bytes);
    memset(s->k_expected, 0xff, (size_t)s->k.bytes), memset(s->v_expected, 0xff, (size_t)s->v.bytes);
    choose_slots(s);
    for (int64_t t = 0; t < STORED_TOKENS; t++) expect_token(s, t);
    store_tokens(tb, s);
    assert_memory_equal(s->k.host, s->k_expected, (size_t)s->k.bytes);
    assert_memory_equal(s->v.host, s->v_expected, (size_t)s->v.bytes);
    free(s->k_expected), free(s->v_expected);
    tensor_free(&s->fused), tensor_free(&s->k), tensor_free(&s->v);
}

static void stores_keys_and_values(struct test_backend *tb, struct random *random)
{
    static const int32_t head_sizes[] = {64, 80, 96, 112, 120, 128, 192, 256}, block_sizes[] = {8, 16, 32, 64, 128};
    for (int i = 0; i < 40; i++) {
        const enum dtype cache = (enum dtype)(i % 5);
        const int32_t head_size = head_sizes[i % 8];
        if (head_size % 16 != 0 && dtype_size(cache) == 1) continue;
        struct stored s = {.dtype = types[i / 5 % 3],
                           .cache = cache,
                           .head_size = head_size,
                           .v_head_size = i % 3 == 1 ? 96 : head_size,
                           .block_size = block_sizes[i / 8]};
        const int32_t largest = head_size > s.v_head_size ? head_size : s.v_head_size;
        s.block_stride = (int64_t)STORED_HEADS * largest * s.block_size + i % 3 * 64;
        check_reshape(tb, random, &s);
    }
}

/* Over tokens that are stored, whatever the others hold; NaN and infinities are passed over. */
static void calculates_scales(struct test_backend *tb, struct random *random)
{
    enum { TOKENS = 37, HEADS = 3, HEAD = 48, SIZE = HEADS * HEAD, STRIDE = 2 * SIZE + 5 };
    static const float largest[] = {0, 6.99f, 7, 7.01f, 14, 14.1f, 500, 1e30f};
    for (int i = 0; i < 24; i++) {
        struct tensor kv = tensor_random(tb->b, types[i % 3], TOKENS * STRIDE, 1e-3, random);
        const double k = types[i % 3] == DTYPE_FLOAT16 && largest[i / 3] > 6e4f ? 6e4 : (double)largest[i / 3];
        int64_t slots[TOKENS];
        for (int t = 0; t < TOKENS; t++) {
            slots[t] = t % 5 == 2 ? -1 : 3 * t;
            tensor_set(&kv, t * STRIDE + t % SIZE, slots[t] < 0 ? 1e4 : (double)NAN);
            tensor_set(&kv, t * STRIDE + SIZE + t % SIZE,
                       slots[t] < 0                ? 1e4
                       : kv.dtype == DTYPE_FLOAT32 ? -(double)INFINITY
                                                   : (double)NAN);
        }
        tensor_set(&kv, 21 * STRIDE + SIZE - 1, -k);
        const double stored = tensor_get(&kv, 21 * STRIDE + SIZE - 1);
        tensor_upload(&kv);
        const float before[2] = {KV_SCALE_LEAST, 32};
        double expected = (double)KV_SCALE_LEAST;
        while (448 * expected < 4 * -stored) expected *= 2;
        struct tensor slots_on = tensor_bytes(tb->b, slots, sizeof slots);
        struct tensor scales = tensor_bytes(tb->b, before, sizeof before);
        const struct reshape_and_cache_args args = {.key = kv.data,
                                                    .value = (uint8_t *)kv.data + SIZE * dtype_size(types[i % 3]),
                                                    .kv_stride = STRIDE,
                                                    .slot_mapping = slots_on.data,
                                                    .num_tokens = TOKENS,
                                                    .num_kv_heads = HEADS,
                                                    .head_size = HEAD,
                                                    .v_head_size = HEAD,
                                                    .dtype = types[i % 3],
                                                    .cache_dtype = DTYPE_FP8_E4M3,
                                                    .kv_scales = scales.data};
        tb->b->calculate_kv_scales(tb->b, &args);
        float after[2];
        tensor_download(&scales);
        memcpy(after, scales.host, sizeof after);
        assert_true((double)after[0] == expected);
        assert_true(after[1] == 32); /* never lowered */
        tensor_free(&kv), tensor_free(&slots_on), tensor_free(&scales);
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
    const struct copy_blocks_args copy = {
        .caches = device, .num_caches = CACHES, .block_bytes = BYTES, .pairs = pairs_on.data, .num_pairs = 3};
    struct swap_blocks_args swap = {.sources = device,
                                    .destinations = host,
                                    .num_caches = CACHES,
                                    .block_bytes = BYTES,
                                    .pairs = out_pairs,
                                    .num_pairs = 2};
    tb->b->copy_blocks(tb->b, &copy);
    tb->b->swap_blocks(tb->b, &swap, NULL);
    swap.sources = host, swap.destinations = device, swap.pairs = in_pairs;
    tb->b->swap_blocks(tb->b, &swap, NULL);
    swap.pairs = NULL, swap.num_pairs = 0;
    tb->b->swap_blocks(tb->b, &swap, NULL);
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

/* A number, NaN and the infinities stay what they are, or become a limit. */
static void clips(struct test_backend *tb, struct random *random)
{
    static const int32_t counts[] = {1, 5, 64, 700, 3001};
    for (int i = 0; i < 15; i++) {
        const enum dtype dtype = types[i % 3];
        struct tensor x = tensor_random(tb->b, dtype, counts[i / 3], 4, random);
        dtype_store(x.host, dtype, 0, NAN);
        if (x.count > 4) dtype_store(x.host, dtype, 3, INFINITY), dtype_store(x.host, dtype, 4, -INFINITY);
        tensor_upload(&x);
        double *expected = tensor_doubles(&x);
        tb->b->clip(tb->b, &(struct clip_args){.x = x.data, .count = x.count, .limit = 1.5f, .dtype = dtype});
        tensor_download(&x);
        for (int64_t k = 0; k < x.count; k++) {
            const double value = dtype_load(x.host, dtype, k), limited = fmax(-1.5, fmin(1.5, expected[k]));
            assert_true(isnan(expected[k]) ? isnan(value) : value == limited);
        }
        free(expected);
        tensor_free(&x);
    }
}

/* Beside other columns, at positions where the logarithm has just changed, of sizes that are no multiple of a vector
 * too. */
static void scales_queries(struct test_backend *tb, struct random *random)
{
    static const int32_t sizes[] = {128, 60, 3000, 7};
    for (int i = 0; i < 24; i++) {
        const enum dtype dtype = types[i % 3];
        const int32_t size = sizes[i / 6], tokens = i % 2 ? 1 : 9, first = i / 3 % 2;
        const int32_t positions[] = {7, 8, 0, 6, 100, 8192 * 8 - 1, 8192 * 8, 1 << 20, 47};
        const int64_t stride = size + (i % 4 < 2 ? 16 : 3);
        const struct query_scaling scaling = {.length = 8, .first = first, .beta = 0.1f + 0.2f * (float)(i % 5)};
        struct tensor x = tensor_random(tb->b, dtype, tokens * stride, 2, random);
        struct tensor at = tensor_bytes(tb->b, positions, tokens * (int64_t)sizeof *positions);
        double *expected = tensor_doubles(&x);
        for (int64_t k = 0; k < x.count; k++)
            if (k % stride < size)
                expected[k] *= 1 + (double)scaling.beta * log(1 + (positions[k / stride] + first) / 8);
        tb->b->scale_queries(tb->b, &(struct scale_queries_args){.x = x.data,
                                                                 .stride = stride,
                                                                 .positions = at.data,
                                                                 .scaling = scaling,
                                                                 .num_tokens = tokens,
                                                                 .size = size,
                                                                 .dtype = dtype});
        tensor_download(&x);
        check_close(tb, "scale_queries", &x, expected, x.count, dtype);
        free(expected);
        tensor_free(&x), tensor_free(&at);
    }
}

/* Parts beside other columns, some of which stay as they are, of sizes that are no multiple of a vector too. */
static void scales_columns(struct test_backend *tb, struct random *random)
{
    static const int32_t sizes[][4] = {{128, 64, 16, 8}, {3, 60, 1, 7}, {3000, 8, 520, 16}, {24, 0, 0, 0}};
    static const float multipliers[] = {0.7f, 1, -1.3f, 2.5f};
    for (int i = 0; i < 24; i++) {
        const enum dtype dtype = types[i % 3];
        const int32_t *parts = sizes[i / 6], tokens = i % 2 ? 1 : 9;
        const int32_t size = parts[0] + parts[1] + parts[2] + parts[3];
        const int64_t stride = size + (i % 4 < 2 ? 16 : 3);
        struct tensor x = tensor_random(tb->b, dtype, tokens * stride, 2, random);
        struct scale_columns_args args = {.x = x.data, .stride = stride, .num_tokens = tokens, .dtype = dtype};
        double *expected = tensor_doubles(&x);
        for (int32_t column = 0; args.num_parts < 4 && parts[args.num_parts] > 0; args.num_parts++) {
            const int p = args.num_parts;
            args.sizes[p] = parts[p], args.multipliers[p] = multipliers[p];
            for (const int32_t end = column + parts[p]; column < end; column++)
                for (int64_t t = 0; t < tokens; t++) expected[t * stride + column] *= (double)multipliers[p];
        }
        tb->b->scale_columns(tb->b, &args);
        tensor_download(&x);
        check_close(tb, "scale_columns", &x, expected, x.count, dtype);
        free(expected);
        tensor_free(&x);
    }
}

/* Gates of elements and of heads, beside other columns, of sizes that are no multiple of a vector too. */
static void output_gates(struct test_backend *tb, struct random *random)
{
    static const int32_t sizes[][2] = {{128, 128}, {128, 2}, {160, 2}, {60, 60}, {60, 5}, {3000, 3000}, {7, 1}};
    for (int i = 0; i < 42; i++) {
        const enum dtype dtype = types[i % 3];
        const int32_t size = sizes[i / 6][0], gates = sizes[i / 6][1], tokens = i % 2 ? 1 : 7;
        const int64_t stride = gates + (i % 4 < 2 ? 16 : 3);
        struct tensor x = tensor_random(tb->b, dtype, (int64_t)tokens * size, 2, random);
        struct tensor gate = tensor_random(tb->b, dtype, tokens * stride, 8, random);
        dtype_store(gate.host, dtype, 0, 25);
        if (gates > 1) dtype_store(gate.host, dtype, 1, -100);
        tensor_upload(&gate);
        double *expected = tensor_doubles(&x), *g = tensor_doubles(&gate);
        const enum output_gate kind = i / 3 % 2 ? OUTPUT_GATE_SIGMOID : OUTPUT_GATE_SOFTPLUS;
        for (int64_t k = 0; k < x.count; k++) {
            const double value = g[k / size * stride + k % size / (size / gates)];
            expected[k] *= kind == OUTPUT_GATE_SIGMOID ? 1 / (1 + exp(-value)) : log1p(exp(value));
        }
        tb->b->output_gate(tb->b, &(struct output_gate_args){.x = x.data,
                                                             .gate = gate.data,
                                                             .gate_stride = stride,
                                                             .num_tokens = tokens,
                                                             .size = size,
                                                             .gate_size = gates,
                                                             .kind = kind,
                                                             .dtype = dtype});
        tensor_download(&x);
        check_close(tb, "output_gate", &x, expected, x.count, dtype);
        free(expected), free(g);
        tensor_free(&x), tensor_free(&gate);
    }
}

/* Calls with no tokens write nothing. */
static void empty_calls(struct test_backend *tb, struct random *random)
{
    struct tensor t = tensor_random(tb->b, DTYPE_FLOAT32, 64, 1, random), same = tensor_bytes(tb->b, t.host, t.bytes);
    const struct weight weight = weight_of(&t, 8, NULL);
    workspace_for(tb, 16, 8);
    struct linear_args linear = linear_of(&t, &t, &weight);
    struct rms_norm_args norm = rms_norm_of(&t, &t, &t);
    struct act_and_mul_args act = act_and_mul_of(&t, &t, 1);
    struct activate_args activate = activate_of(&t, &t, 1);
    linear.num_tokens = norm.num_tokens = act.num_tokens = activate.num_tokens = 0;
    tb->b->linear(tb->b, &linear);
    tb->b->rms_norm(tb->b, &norm);
    tb->b->act_and_mul(tb->b, &act);
    tb->b->activate(tb->b, &activate);
    tb->b->clip(tb->b, &(struct clip_args){.x = t.data, .limit = 0.5f});
    tb->b->scale_queries(tb->b, &(struct scale_queries_args){.x = t.data, .scaling = {.length = 1}, .size = 8});
    tb->b->output_gate(tb->b, &(struct output_gate_args){
                                  .x = t.data, .gate = t.data, .size = 8, .gate_size = 8, .kind = OUTPUT_GATE_SIGMOID});
    tb->b->gather_rows(tb->b, &(struct gather_rows_args){.out = t.data, .x = t.data, .size = 8});
    tb->b->embedding(tb->b, &(struct embedding_args){.out = t.data, .table = &weight, .multiplier = 1});
    tb->b->scale_logits(tb->b, &(struct scale_logits_args){.logits = t.data, .vocab_size = 8, .multiplier = 2});
    tb->b->scatter_logits(tb->b, &(struct scatter_logits_args){
                                     .out = t.data, .logits = t.data, .ids = t.data, .num_ids = 1, .vocab_size = 8});
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
EVERY_BACKEND_TEST(calls_the_host)
EVERY_BACKEND_TEST(linear_of_few_and_many_tokens)
EVERY_BACKEND_TEST(linear_of_segments)
EVERY_BACKEND_TEST(linear_of_odd_sizes)
EVERY_BACKEND_TEST(linear_of_large_sizes)
EVERY_BACKEND_TEST(linear_keeps_infinity)
EVERY_BACKEND_TEST(linear_with_a_small_workspace)
EVERY_BACKEND_TEST(linear_tokens_are_independent)
EVERY_BACKEND_TEST(linear_of_parts)
EVERY_BACKEND_TEST(norms)
EVERY_BACKEND_TEST(layer_norms)
EVERY_BACKEND_TEST(adds_with_every_norm)
EVERY_BACKEND_TEST(norms_with_strides)
EVERY_BACKEND_TEST(norm_of_zeros_is_zero)
EVERY_BACKEND_TEST(rotates)
EVERY_BACKEND_TEST(norms_heads)
EVERY_BACKEND_TEST(activates)
EVERY_BACKEND_TEST(activates_apart)
EVERY_BACKEND_TEST(activates_without_a_gate)
EVERY_BACKEND_TEST(clips)
EVERY_BACKEND_TEST(scales_queries)
EVERY_BACKEND_TEST(scales_columns)
EVERY_BACKEND_TEST(output_gates)
EVERY_BACKEND_TEST(embeds)
EVERY_BACKEND_TEST(gathers_rows)
EVERY_BACKEND_TEST(gathers_parts_of_rows)
EVERY_BACKEND_TEST(scatters_logits)
EVERY_BACKEND_TEST(scales_logits)
EVERY_BACKEND_TEST(updates_block_tables)
EVERY_BACKEND_TEST(stores_keys_and_values)
EVERY_BACKEND_TEST(calculates_scales)
EVERY_BACKEND_TEST(moves_blocks)
EVERY_BACKEND_TEST(empty_calls)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(opens_what_it_knows),
        cmocka_unit_test(chooses_an_instruction_set),
        cmocka_unit_test(test_allocates_and_copies),
        cmocka_unit_test(test_orders_streams),
        cmocka_unit_test(test_calls_the_host),
        cmocka_unit_test(test_linear_of_few_and_many_tokens),
        cmocka_unit_test(test_linear_of_segments),
        cmocka_unit_test(test_linear_of_odd_sizes),
        cmocka_unit_test(test_linear_of_large_sizes),
        cmocka_unit_test(test_linear_keeps_infinity),
        cmocka_unit_test(test_linear_with_a_small_workspace),
        cmocka_unit_test(test_linear_tokens_are_independent),
        cmocka_unit_test(test_linear_of_parts),
        cmocka_unit_test(test_norms),
        cmocka_unit_test(test_layer_norms),
        cmocka_unit_test(test_adds_with_every_norm),
        cmocka_unit_test(test_norms_with_strides),
        cmocka_unit_test(test_norm_of_zeros_is_zero),
        cmocka_unit_test(test_rotates),
        cmocka_unit_test(test_norms_heads),
        cmocka_unit_test(test_activates),
        cmocka_unit_test(test_activates_apart),
        cmocka_unit_test(test_activates_without_a_gate),
        cmocka_unit_test(test_clips),
        cmocka_unit_test(test_scales_queries),
        cmocka_unit_test(test_scales_columns),
        cmocka_unit_test(test_output_gates),
        cmocka_unit_test(test_embeds),
        cmocka_unit_test(test_gathers_rows),
        cmocka_unit_test(test_gathers_parts_of_rows),
        cmocka_unit_test(test_scatters_logits),
        cmocka_unit_test(test_scales_logits),
        cmocka_unit_test(test_updates_block_tables),
        cmocka_unit_test(test_stores_keys_and_values),
        cmocka_unit_test(test_calculates_scales),
        cmocka_unit_test(test_moves_blocks),
        cmocka_unit_test(test_empty_calls),
    };
    cmocka_set_test_filter(getenv("QUIRE_TEST_FILTER"));
    return cmocka_run_group_tests(tests, kernel_test_setup, kernel_test_teardown);
}
