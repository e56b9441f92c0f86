/* Matmuls with few tokens and with a batch of tokens on a GPU, against float64; and the fused operations of a decode
 * step, against the operations that they replace. Skipped where there is no GPU. */
#include <math.h>
#include <pthread.h>
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

enum { MAX_TOKENS = 17, MAX_BATCH = 257 };

static void workspace_for(struct test_backend *gpu, int64_t out_features, int64_t in_features)
{
    const struct workspace_query query = {.max_num_tokens = MAX_BATCH,
                                          .max_num_seqs = MAX_BATCH,
                                          .max_model_len = 64,
                                          .num_heads = 1,
                                          .head_size = 64,
                                          .block_size = 16,
                                          .max_in_features = in_features,
                                          .vocab_size = out_features};
    use_workspace(gpu, &query);
}

struct linear_case {
    int32_t tokens;
    int64_t out_features, in_features;
    int64_t x_pad, out_pad; /* elements between the tokens of x and of out */
    enum dtype dtype, out_dtype;
    bool bias;
    enum dtype bias_dtype;
};

/* The tokens of a padded tensor without the padding, which must still be poison. */
static struct tensor without_padding(const struct tensor *t, int64_t tokens, int64_t size, int64_t stride)
{
    struct tensor out = *t;
    const int64_t element = dtype_size(t->dtype);
    out.host = malloc((size_t)(tokens * size * element));
    for (int64_t i = 0; i < tokens; i++) {
        memcpy(out.host + i * size * element, t->host + i * stride * element, (size_t)(size * element));
        for (int64_t j = size * element; j < stride * element; j++)
            assert_int_equal(t->host[i * stride * element + j], 0xff);
    }
    return out;
}

/* Computes it twice, which must give the same bits. Behind the tokens of x is poison. */
static void check_linear(struct test_backend *gpu, struct random *random, const struct linear_case *c)
{
    struct backend *b = gpu->b;
    const int64_t x_stride = c->in_features + c->x_pad, out_stride = c->out_features + c->out_pad;
    struct tensor x = tensor_poison(b, c->dtype, (c->tokens + 8) * x_stride);
    struct tensor w = tensor_random(b, c->dtype, c->out_features * c->in_features, 1, random);
    struct tensor bias = tensor_random(b, c->bias_dtype, c->out_features, 3, random);
    struct tensor out = tensor_poison(b, c->out_dtype, c->tokens * out_stride);
    struct tensor again = tensor_poison(b, c->out_dtype, c->tokens * out_stride);
    double *xs = malloc(sizeof *xs * (size_t)(c->tokens * c->in_features)), *ws = tensor_doubles(&w);
    double *biases = tensor_doubles(&bias), *expected = malloc(sizeof *xs * (size_t)(c->tokens * c->out_features));
    for (int64_t t = 0; t < c->tokens; t++)
        for (int64_t i = 0; i < c->in_features; i++) {
            tensor_set(&x, t * x_stride + i, 2 * random_uniform(random) - 1);
            xs[t * c->in_features + i] = tensor_get(&x, t * x_stride + i);
        }
    tensor_upload(&x);
    const struct weight weight = weight_of(&w, c->in_features, c->bias ? &bias : NULL);
    struct linear_args args = linear_of(&out, &x, &weight);
    args.num_tokens = c->tokens, args.out_stride = out_stride, args.x_stride = x_stride;
    b->linear(b, &args);
    args.out = again.data;
    b->linear(b, &args);
    tensor_download(&out), tensor_download(&again);
    assert_memory_equal(out.host, again.host, (size_t)out.bytes);
    reference_linear(expected, xs, ws, c->bias ? biases : NULL, c->tokens, c->out_features, c->in_features);
    struct tensor tokens = without_padding(&out, c->tokens, c->out_features, out_stride);
    char what[160];
    snprintf(what, sizeof what, "linear: %d x %lld x %lld, %s to %s", c->tokens, (long long)c->out_features,
             (long long)c->in_features, dtype_name(c->dtype), dtype_name(c->out_dtype));
    check_close(gpu, what, &tokens, expected, c->tokens * c->out_features, c->out_dtype);
    check_workspace(gpu);
    free(tokens.host), free(xs), free(ws), free(biases), free(expected);
    tensor_free(&x), tensor_free(&w), tensor_free(&bias), tensor_free(&out), tensor_free(&again);
}

static const enum dtype types[] = {DTYPE_FLOAT32, DTYPE_FLOAT16, DTYPE_BFLOAT16};

static void every_number_of_tokens(void **state)
{
    struct kernel_test *test = *state;
    struct test_backend *gpu = kernel_test_gpu(test);
    static const int64_t shapes[][2] = {{16, 8}, {33, 64}, {196, 520}, {1000, 1032}, {2120, 2048}, {7, 4096}};
    workspace_for(gpu, 2120, 4096);
    for (int32_t tokens = 1; tokens <= MAX_TOKENS; tokens++)
        for (int i = 0; i < 6; i++)
            for (int t = 0; t < 3; t++) {
                const struct linear_case c = {.tokens = tokens,
                                              .out_features = shapes[i][0],
                                              .in_features = shapes[i][1],
                                              .x_pad = (tokens + i) % 3 * 8,
                                              .out_pad = (tokens + i) % 4,
                                              .dtype = types[t],
                                              .out_dtype = (tokens + i) % 2 ? types[t] : DTYPE_FLOAT32,
                                              .bias = (tokens + t) % 2 == 0,
                                              .bias_dtype = types[t]};
                check_linear(gpu, &test->random, &c);
            }
}

/* Numbers of tokens around every size that a kernel is padded to. The shapes give one tile; tiles in two, three, four
 * and eight parts; tiles of fewer than 64 output features and of fewer than 128. */
static void batches(void **state)
{
    struct kernel_test *test = *state;
    struct test_backend *gpu = kernel_test_gpu(test);
    static const int64_t shapes[][2] = {{16, 8},     {1000, 1032}, {300, 1544}, {200, 2056},
                                        {130, 4104}, {9001, 40},   {17000, 24}};
    static const int32_t tokens[] = {9, 15, 16, 17, 31, 32, 33, 47, 48, 49, 63, 64, 65, 128, 200, 257};
    workspace_for(gpu, 17000, 4104);
    for (size_t n = 0; n < sizeof tokens / sizeof *tokens; n++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            const enum dtype dtype = (n + i) % 2 ? DTYPE_FLOAT16 : DTYPE_BFLOAT16;
            const struct linear_case c = {.tokens = tokens[n],
                                          .out_features = shapes[i][0],
                                          .in_features = shapes[i][1],
                                          .x_pad = (int64_t)(n + i) % 3 * 8,
                                          .out_pad = (int64_t)(2 * n + i) % 5,
                                          .dtype = dtype,
                                          .out_dtype = (n + 2 * i) % 3 ? dtype : DTYPE_FLOAT32,
                                          .bias = (n + i) % 4 < 2,
                                          .bias_dtype = dtype};
            check_linear(gpu, &test->random, &c);
        }
}

/* Sizes and strides that do not allow 16-byte reads. */
static void odd_shapes(void **state)
{
    struct kernel_test *test = *state;
    struct test_backend *gpu = kernel_test_gpu(test);
    workspace_for(gpu, 300, 1000);
    for (int i = 0; i < 60; i++) {
        const struct linear_case c = {.tokens = (int32_t)random_between(&test->random, 1, MAX_TOKENS),
                                      .out_features = random_between(&test->random, 1, 300),
                                      .in_features = random_between(&test->random, 1, 1000),
                                      .x_pad = random_between(&test->random, 0, 9),
                                      .out_pad = random_between(&test->random, 0, 9),
                                      .dtype = types[i % 3],
                                      .out_dtype = i % 2 ? types[i % 3] : DTYPE_FLOAT32,
                                      .bias = i % 4 == 0,
                                      .bias_dtype = types[i % 3]};
        check_linear(gpu, &test->random, &c);
    }
}

/* So many input features that several blocks share x in parts; and more tiles than blocks. */
static void large_weights(void **state)
{
    struct kernel_test *test = *state;
    struct test_backend *gpu = kernel_test_gpu(test);
    static const struct linear_case cases[] = {
        {.tokens = 8, .out_features = 200, .in_features = 14336, .dtype = DTYPE_BFLOAT16, .out_dtype = DTYPE_BFLOAT16},
        {.tokens = 16, .out_features = 200, .in_features = 14336, .dtype = DTYPE_FLOAT16, .out_dtype = DTYPE_FLOAT32},
        {.tokens = 11, .out_features = 2500, .in_features = 8200, .dtype = DTYPE_BFLOAT16, .out_dtype = DTYPE_BFLOAT16},
        {.tokens = 1, .out_features = 9000, .in_features = 1024, .dtype = DTYPE_BFLOAT16, .out_dtype = DTYPE_BFLOAT16},
        {.tokens = 5, .out_features = 4100, .in_features = 4104, .dtype = DTYPE_BFLOAT16, .out_dtype = DTYPE_FLOAT32},
        {.tokens = 8,
         .out_features = 4099,
         .in_features = 5000,
         .dtype = DTYPE_FLOAT16,
         .out_dtype = DTYPE_FLOAT16,
         .bias = true,
         .bias_dtype = DTYPE_FLOAT16},
        {.tokens = 6,
         .out_features = 9001,
         .in_features = 1000,
         .dtype = DTYPE_FLOAT16,
         .out_dtype = DTYPE_FLOAT16,
         .bias = true,
         .bias_dtype = DTYPE_FLOAT16},
    };
    workspace_for(gpu, 9001, 14336);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_linear(gpu, &test->random, &cases[i]);
}

/* A bias of every type, which may differ from the activations' type, for each of the kernels behind linear. */
static void biases_of_any_type(void **state)
{
    struct kernel_test *test = *state;
    struct test_backend *gpu = kernel_test_gpu(test);
    static const int32_t tokens[] = {1, 8, 33, 200};
    workspace_for(gpu, 200, 1032);
    for (int i = 0; i < 4 * 3 * 3 * 2; i++) {
        const enum dtype dtype = types[i % 3];
        const struct linear_case c = {.tokens = tokens[i / 18],
                                      .out_features = 200,
                                      .in_features = 1032,
                                      .dtype = dtype,
                                      .out_dtype = i / 9 % 2 ? DTYPE_FLOAT32 : dtype,
                                      .bias = true,
                                      .bias_dtype = types[i / 3 % 3]};
        check_linear(gpu, &test->random, &c);
    }
}

#ifdef QUIRE_HAVE_CUDA

/* The inputs of the parts of a layer, fused and not. */
struct fused_case {
    struct test_backend *gpu;
    int32_t tokens;
    enum dtype dtype;
    struct tensor x, residual, gain, w, bias;
    struct tensor scales, zeros, order; /* of a quantized weight */
    struct weight weight;
    struct row_segments segments; /* of both operations without a norm */
    float limit;                  /* of gates */
};

/* What a fused case is made from. */
struct fused_shape {
    int32_t tokens;
    int64_t out_features, in_features;
    enum dtype dtype, gain_dtype;
    bool bias;
    /* of a quantized weight */
    enum weight_format format;
    int64_t group_size, scale_rows;
    enum dtype scale_dtype;
    bool zeros, ordered;
};

static struct tensor random_order(struct backend *b, int64_t n, struct random *random)
{
    int32_t *order = malloc(sizeof *order * (size_t)n);
    for (int64_t i = 0; i < n; i++) {
        const int64_t j = random_between(random, 0, i);
        order[i] = order[j], order[j] = (int32_t)i;
    }
    struct tensor t = tensor_bytes(b, order, n * (int64_t)sizeof *order);
    free(order);
    return t;
}

/* Replaces the weight by a quantized one of random elements; those of FP8 are below 4. */
static void quantize_case(struct fused_case *c, const struct fused_shape *s, struct random *random)
{
    struct backend *b = c->gpu->b;
    struct weight *w = &c->weight;
    w->format = s->format;
    w->group_size = s->group_size ? s->group_size : s->in_features;
    w->scale_rows = s->scale_rows ? s->scale_rows : 1;
    w->scale_dtype = s->scale_dtype;
    tensor_free(&c->w);
    c->w = tensor_random_bytes(b, s->out_features * weight_row_bytes(w), s->format == WEIGHT_FP8 ? 0xcf : 0xff, random);
    c->scales =
        tensor_random(b, s->scale_dtype, weight_scale_count(w), s->format == WEIGHT_INT8 ? 0.002 : 0.05, random);
    c->zeros = tensor_random_bytes(b, s->out_features * weight_groups(w), 15, random);
    c->order = random_order(b, s->in_features, random);
    w->data = c->w.data, w->scales = c->scales.data, w->zeros = s->zeros ? c->zeros.data : NULL;
    w->input_order = s->ordered ? c->order.data : NULL;
    b->weight_prepare(b, w);
}

static struct fused_case fused_case_new(struct test_backend *gpu, struct random *random, const struct fused_shape *s)
{
    struct fused_case c = {.gpu = gpu, .tokens = s->tokens, .dtype = s->dtype};
    c.x = tensor_random(gpu->b, s->dtype, s->tokens * s->in_features, 2, random);
    c.residual = tensor_random(gpu->b, s->dtype, s->tokens * s->out_features, 2, random);
    c.gain = tensor_random(gpu->b, s->gain_dtype, s->in_features, 2, random);
    c.w = tensor_random(gpu->b, s->dtype, s->out_features * s->in_features, 0.1, random);
    c.bias = tensor_random(gpu->b, s->dtype, s->out_features, 1, random);
    c.weight = weight_of(&c.w, s->in_features, s->bias ? &c.bias : NULL);
    if (s->format >= WEIGHT_FP8) quantize_case(&c, s, random);
    return c;
}

static void fused_case_free(struct fused_case *c)
{
    tensor_free(&c->x), tensor_free(&c->residual), tensor_free(&c->gain), tensor_free(&c->w), tensor_free(&c->bias);
    if (c->scales.host) tensor_free(&c->scales), tensor_free(&c->zeros), tensor_free(&c->order);
}

static void check_tensors_within(struct fused_case *c, const char *operation, struct tensor *out,
                                 struct tensor *expected, double tolerance)
{
    char what[160];
    snprintf(what, sizeof what, "%s: %d x %lld x %lld, %s", operation, c->tokens, (long long)c->weight.out_features,
             (long long)c->weight.in_features, dtype_name(c->dtype));
    tensor_download(out), tensor_download(expected);
    double *values = tensor_doubles(expected);
    check_within(c->gpu, what, out, values, out->count, tolerance);
    free(values);
    tensor_free(out), tensor_free(expected);
}

static void check_tensors(struct fused_case *c, const char *operation, struct tensor *out, struct tensor *expected)
{
    check_tensors_within(c, operation, out, expected, 1e-2);
}

/* Whether the fused operation was computed. Only that of a quantized weight may decline, for a norm of its own. */
static bool is_fused(const struct fused_case *c, bool done)
{
    if (!done) assert_true(weight_is_quantized(&c->weight));
    return done;
}

static void check_norm_linear(struct fused_case *c, enum dtype out_dtype)
{
    struct backend *b = c->gpu->b;
    struct tensor normed = tensor_poison(b, c->dtype, c->tokens * c->weight.in_features);
    struct tensor out = tensor_poison(b, out_dtype, c->tokens * c->weight.out_features);
    struct tensor expected = tensor_poison(b, out_dtype, c->tokens * c->weight.out_features);
    const struct rms_norm_args norm = rms_norm_of(&normed, &c->x, &c->gain);
    const struct linear_args linear = linear_of(&expected, &normed, &c->weight);
    const struct norm_linear_args fused = {linear_of(&out, &c->x, &c->weight), norm_of(&c->gain)};
    b->rms_norm(b, &norm);
    b->linear(b, &linear);
    if (is_fused(c, b->norm_linear(b, &fused))) {
        check_tensors(c, "norm_linear", &out, &expected);
    } else {
        tensor_free(&out), tensor_free(&expected);
    }
    tensor_free(&normed);
}

static void check_linear_residual(struct fused_case *c, struct random *random)
{
    struct backend *b = c->gpu->b;
    struct tensor gain = tensor_random(b, c->dtype, c->weight.out_features, 1, random);
    struct tensor sum = tensor_poison(b, c->dtype, c->residual.count);
    struct tensor out = tensor_bytes(b, c->residual.host, c->residual.bytes);
    struct tensor expected = tensor_bytes(b, c->residual.host, c->residual.bytes);
    out.dtype = expected.dtype = c->dtype;
    out.count = expected.count = c->residual.count;
    struct linear_args linear = linear_of(&sum, &c->x, &c->weight), fused = linear_of(&out, &c->x, &c->weight);
    linear.segments = fused.segments = c->segments;
    const struct fused_add_rms_norm_args add = fused_add_rms_norm_of(&sum, &sum, &expected, &gain);
    b->linear(b, &linear);
    b->fused_add_rms_norm(b, &add);
    assert_true(b->linear_residual(b, &fused));
    check_tensors(c, "linear_residual", &out, &expected);
    tensor_free(&gain), tensor_free(&sum);
}

/* Where INT4's kernel rounds x times its gains instead of the normed x, gate times up differs by 0.5 % and, with few
 * elements, by up to 2 %. */
static double gate_tolerance(const struct fused_case *c, bool with_norm)
{
    const struct weight *w = &c->weight;
    return with_norm && w->format == WEIGHT_INT4 && !w->input_order && c->dtype == DTYPE_BFLOAT16 ? 3e-2 : 1e-2;
}

static void check_gate_up(struct fused_case *c, bool with_norm, enum activation activation)
{
    struct backend *b = c->gpu->b;
    const struct norm_params norm = norm_of(&c->gain);
    const int64_t size = c->weight.out_features / 2;
    struct tensor normed = tensor_poison(b, c->dtype, c->tokens * c->weight.in_features);
    struct tensor both = tensor_poison(b, c->dtype, c->tokens * size * 2);
    struct tensor out = tensor_poison(b, c->dtype, c->tokens * size);
    struct tensor expected = tensor_poison(b, c->dtype, c->tokens * size);
    const struct rms_norm_args first = rms_norm_of(&normed, &c->x, &c->gain);
    struct linear_args linear = linear_of(&both, &normed, &c->weight);
    struct act_and_mul_args act = act_and_mul_of(&expected, &both, c->tokens);
    struct gate_up_args fused = {.linear = linear_of(&out, with_norm ? &c->x : &normed, &c->weight),
                                 .norm = with_norm ? &norm : NULL,
                                 .gate = {.activation = activation, .limit = c->limit}};
    act.activation = activation;
    act.limit = c->limit;
    fused.linear.out_stride = size;
    linear.segments = fused.linear.segments = c->segments;
    b->rms_norm(b, &first);
    b->linear(b, &linear);
    b->act_and_mul(b, &act);
    if (is_fused(c, b->gate_up(b, &fused))) {
        check_tensors_within(c, "gate_up", &out, &expected, gate_tolerance(c, with_norm));
    } else {
        assert_true(with_norm);
        tensor_free(&out), tensor_free(&expected);
    }
    tensor_free(&normed), tensor_free(&both);
}

/* gate_up without gates. A square has twice the error of what is squared. */
static void check_up(struct fused_case *c, bool with_norm, enum activation activation)
{
    struct backend *b = c->gpu->b;
    const struct norm_params norm = norm_of(&c->gain);
    const int64_t size = c->weight.out_features;
    struct tensor normed = tensor_poison(b, c->dtype, c->tokens * c->weight.in_features);
    struct tensor out = tensor_poison(b, c->dtype, c->tokens * size);
    struct tensor expected = tensor_poison(b, c->dtype, c->tokens * size);
    const struct rms_norm_args first = rms_norm_of(&normed, &c->x, &c->gain);
    struct linear_args linear = linear_of(&expected, &normed, &c->weight);
    const struct activate_args act = {.out = expected.data,
                                      .x = expected.data,
                                      .activation = activation,
                                      .num_tokens = c->tokens,
                                      .size = (int32_t)size,
                                      .dtype = c->dtype};
    struct gate_up_args fused = {.linear = linear_of(&out, with_norm ? &c->x : &normed, &c->weight),
                                 .norm = with_norm ? &norm : NULL,
                                 .gate = {.kind = GATE_NONE, .activation = activation}};
    linear.segments = fused.linear.segments = c->segments;
    b->rms_norm(b, &first);
    b->linear(b, &linear);
    b->activate(b, &act);
    if (is_fused(c, b->gate_up(b, &fused))) {
        check_tensors_within(c, "gate_up without gates", &out, &expected, 2 * gate_tolerance(c, with_norm));
    } else {
        tensor_free(&out), tensor_free(&expected);
    }
    tensor_free(&normed);
}

static void fused_operations_match_the_plain_ones(void **state)
{
    struct kernel_test *test = *state;
    struct test_backend *gpu = kernel_test_gpu(test);
    static const int64_t shapes[][2] = {{16, 64}, {200, 520}, {2048, 2048}, {3072, 1032}, {1000, 4096}};
    workspace_for(gpu, 3072, 4096);
    for (int32_t tokens = 1; tokens <= FUSED_MAX_TOKENS; tokens++)
        for (int i = 0; i < 5; i++) {
            const enum dtype dtype = (tokens + i) % 2 ? DTYPE_BFLOAT16 : DTYPE_FLOAT16;
            const struct fused_shape shape = {tokens,
                                              shapes[i][0],
                                              shapes[i][1],
                                              dtype,
                                              (tokens + i) % 3 ? dtype : DTYPE_FLOAT32,
                                              (tokens + i) % 4 == 0};
            struct fused_case c = fused_case_new(gpu, &test->random, &shape);
            c.limit = i == 2 ? 0.5f : 0;
            check_norm_linear(&c, i % 2 ? DTYPE_FLOAT32 : dtype);
            check_linear_residual(&c, &test->random);
            for (int k = 0; k < 2 * NUM_GATE_ACTIVATIONS; k++) check_gate_up(&c, k % 2 == 0, (enum activation)(k / 2));
            check_up(&c, i % 2 == 0, tokens % 2 ? ACTIVATION_RELU2 : ACTIVATION_GELU);
            fused_case_free(&c);
        }
}

/* The i-th of many quantized weights with so many tokens. The shapes give tiles of which a part is missing, x in parts,
 * groups whose scales begin at any address, and units that some warps do not have; the last gives many tiles. */
static struct fused_case quantized_case_new(struct test_backend *gpu, struct random *random, int32_t tokens, int i)
{
    static const int64_t shapes[][2] = {{16, 128},    {200, 896},   {2048, 2048}, {3072, 1152},
                                        {1000, 4096}, {264, 14336}, {17000, 256}};
    static const int64_t group_sizes[] = {128, 0, 64, 32, 128};
    static const enum weight_format formats[] = {WEIGHT_INT4, WEIGHT_FP8, WEIGHT_INT8};
    const enum weight_format format = formats[i % 3];
    const int64_t group = group_sizes[(i / 3 + tokens) % 5];
    const enum dtype dtype = (tokens + i) % 2 ? DTYPE_BFLOAT16 : DTYPE_FLOAT16;
    const struct fused_shape shape = {.tokens = tokens,
                                      .out_features = shapes[i / 3][0],
                                      .in_features = shapes[i / 3][1],
                                      .dtype = dtype,
                                      .gain_dtype = i % 5 ? dtype : DTYPE_FLOAT32,
                                      .bias = i % 4 == 0,
                                      .format = format,
                                      .group_size = format == WEIGHT_INT4 || group == 0 ? group : 128,
                                      .scale_rows = format == WEIGHT_FP8 && group ? 128 : 1,
                                      .scale_dtype = format == WEIGHT_INT4 ? types[i / 3 % 3] : DTYPE_FLOAT32,
                                      .zeros = format == WEIGHT_INT4 && i % 2,
                                      .ordered = format == WEIGHT_INT4 && (tokens + i / 3) % 2};
    return fused_case_new(gpu, random, &shape);
}

static void workspace_for_quantized(struct test_backend *gpu, int32_t tokens)
{
    const struct workspace_query query = {.max_num_tokens = tokens,
                                          .max_num_seqs = tokens,
                                          .max_model_len = 64,
                                          .num_heads = 1,
                                          .head_size = 64,
                                          .block_size = 16,
                                          .max_in_features = 14336,
                                          .vocab_size = 1000,
                                          .max_quantized_elements = 17000 * 2048};
    use_workspace(gpu, &query);
}

static void fused_operations_of_quantized_weights(void **state)
{
    struct kernel_test *test = *state;
    struct test_backend *gpu = kernel_test_gpu(test);
    workspace_for_quantized(gpu, 16);
    for (int32_t tokens = 1; tokens <= FUSED_MAX_TOKENS; tokens++)
        for (int i = 0; i < 6 * 3; i++) {
            struct fused_case c = quantized_case_new(gpu, &test->random, tokens, i);
            check_norm_linear(&c, i % 2 ? DTYPE_FLOAT32 : c.dtype);
            check_linear_residual(&c, &test->random);
            check_gate_up(&c, i % 2 == 0, ACTIVATION_SILU);
            check_up(&c, i % 2 == 0, ACTIVATION_RELU2);
            fused_case_free(&c);
        }
}

/* Whether this GPU has kernels of all fused operations for more than FUSED_MAX_TOKENS, and for INT4 in groups of any
 * multiple of 128. */
static bool has_fused_batches(struct test_backend *gpu, struct random *random)
{
    struct backend *b = gpu->b;
    const struct fused_shape shape = {9, 16, 64, DTYPE_FLOAT16, DTYPE_FLOAT16, false};
    struct fused_case c = fused_case_new(gpu, random, &shape);
    const struct linear_args args = linear_of(&c.residual, &c.x, &c.weight);
    const bool taken = b->linear_residual(b, &args);
    tensor_download(&c.residual);
    fused_case_free(&c);
    return taken;
}

/* Weights that lie one behind the other: of segments without a row, with one tile and with several. */
static void fused_operations_of_segments(void **state)
{
    struct kernel_test *test = *state;
    struct test_backend *gpu = kernel_test_gpu(test);
    enum { COUNT = 5, TOKENS = 96, MOST = 30 };
    static const enum weight_format formats[] = {WEIGHT_BFLOAT16, WEIGHT_INT4, WEIGHT_FP8, WEIGHT_INT8};
    workspace_for_quantized(gpu, MOST * TOKENS);
    if (!has_fused_batches(gpu, &test->random)) skip();
    for (int i = 0; i < 4 * 3; i++) {
        const int32_t times[] = {1, 7, MOST}, n = times[i / 4];
        const int32_t starts[COUNT + 1] = {0, 0, 5 * n, 6 * n, 40 * n, TOKENS * n};
        const int64_t features = (i / 2 + i / 4) % 2 ? 264 : 272;
        const struct fused_shape shape = {.tokens = TOKENS * n,
                                          .out_features = COUNT * features,
                                          .in_features = 512,
                                          .dtype = DTYPE_BFLOAT16,
                                          .gain_dtype = DTYPE_BFLOAT16,
                                          .bias = (i + i / 4) % 2,
                                          .format = formats[i % 4],
                                          .group_size = i % 4 == 1 ? 128 : 0,
                                          .scale_dtype = i % 4 == 1 ? DTYPE_FLOAT16 : DTYPE_FLOAT32};
        struct fused_case c = fused_case_new(gpu, &test->random, &shape);
        struct tensor device_starts = tensor_bytes(gpu->b, starts, sizeof starts);
        tensor_free(&c.residual);
        c.residual = tensor_random(gpu->b, c.dtype, c.tokens * features, 2, &test->random);
        c.weight.out_features = features;
        c.segments = (struct row_segments){device_starts.data, COUNT};
        check_linear_residual(&c, &test->random);
        check_gate_up(&c, false, ACTIVATION_SILU);
        fused_case_free(&c);
        tensor_free(&device_starts);
    }
}

/* Few tokens of bfloat16, in groups of 128 and more, have a kernel of their own: it meets tiles of which a part is
 * missing, x in parts, and several tiles for a block. */
static void fused_operations_of_int4(void **state)
{
    struct kernel_test *test = *state;
    struct test_backend *gpu = kernel_test_gpu(test);
    static const int64_t shapes[][3] = {{16, 128, 0},      {200, 384, 128},   {2048, 2048, 256}, {3072, 1152, 384},
                                        {1000, 4224, 128}, {264, 14336, 128}, {17000, 256, 128}};
    workspace_for_quantized(gpu, 16);
    if (!has_fused_batches(gpu, &test->random)) skip();
    for (int32_t tokens = 1; tokens <= FUSED_MAX_TOKENS; tokens++)
        for (int i = 0; i < 7; i++) {
            const struct fused_shape shape = {.tokens = tokens,
                                              .out_features = shapes[i][0],
                                              .in_features = shapes[i][1],
                                              .dtype = DTYPE_BFLOAT16,
                                              .gain_dtype = (tokens + i) % 2 ? DTYPE_BFLOAT16 : DTYPE_FLOAT32,
                                              .bias = (tokens + i) % 4 == 0,
                                              .format = WEIGHT_INT4,
                                              .group_size = shapes[i][2],
                                              .scale_dtype = types[(tokens + i) % 3],
                                              .zeros = (tokens / 2 + i) % 2};
            struct fused_case c = fused_case_new(gpu, &test->random, &shape);
            check_norm_linear(&c, i % 2 ? DTYPE_FLOAT32 : c.dtype);
            check_linear_residual(&c, &test->random);
            check_gate_up(&c, false, ACTIVATION_SILU);
            if (i > 0) check_gate_up(&c, true, ACTIVATION_SILU); /* 16 elements may differ by more */
            fused_case_free(&c);
        }
}

/* A layer of a decode step from the attention's output to the next layer's q, k and v. */
struct layer_case {
    struct test_backend *gpu;
    struct tensor attention, start, residual, gated, qkv; /* start: the residual stream before the layer */
    struct tensor weights[4], gains[2];
    struct weight o, gate_up, down, next_qkv;
};

struct layer_shape {
    int32_t tokens;
    int64_t hidden, inner, qkv;
    enum dtype dtype;
};

static struct layer_case layer_case_new(struct test_backend *gpu, struct random *random, const struct layer_shape *s)
{
    struct backend *b = gpu->b;
    struct layer_case c = {.gpu = gpu};
    const int64_t sizes[4] = {s->hidden * s->hidden, 2 * s->inner * s->hidden, s->hidden * s->inner,
                              s->qkv * s->hidden};
    c.attention = tensor_random(b, s->dtype, s->tokens * s->hidden, 1, random);
    c.start = tensor_random(b, s->dtype, s->tokens * s->hidden, 1, random);
    c.residual = tensor_poison(b, s->dtype, s->tokens * s->hidden);
    c.gated = tensor_poison(b, s->dtype, s->tokens * s->inner);
    c.qkv = tensor_poison(b, s->dtype, s->tokens * s->qkv);
    for (int i = 0; i < 4; i++) c.weights[i] = tensor_random(b, s->dtype, sizes[i], 0.05, random);
    for (int i = 0; i < 2; i++) c.gains[i] = tensor_random(b, s->dtype, s->hidden, 1, random);
    c.o = weight_of(&c.weights[0], s->hidden, NULL);
    c.gate_up = weight_of(&c.weights[1], s->hidden, NULL);
    c.down = weight_of(&c.weights[2], s->inner, NULL);
    c.next_qkv = weight_of(&c.weights[3], s->hidden, NULL);
    return c;
}

static void layer_case_free(struct layer_case *c)
{
    tensor_free(&c->attention), tensor_free(&c->start), tensor_free(&c->residual);
    tensor_free(&c->gated), tensor_free(&c->qkv);
    for (int i = 0; i < 4; i++) tensor_free(&c->weights[i]);
    for (int i = 0; i < 2; i++) tensor_free(&c->gains[i]);
}

/* apart: each operation has ended before the next one is called. */
static void compute_layer(struct layer_case *c, bool apart)
{
    struct backend *b = c->gpu->b;
    struct error err;
    const struct norm_params mlp_norm = norm_of(&c->gains[0]);
    const struct linear_args o = linear_of(&c->residual, &c->attention, &c->o);
    const struct linear_args down = linear_of(&c->residual, &c->gated, &c->down);
    const struct norm_linear_args qkv = {linear_of(&c->qkv, &c->residual, &c->next_qkv), norm_of(&c->gains[1])};
    struct gate_up_args gate_up = {.linear = linear_of(&c->gated, &c->residual, &c->gate_up), .norm = &mlp_norm};
    gate_up.linear.out_stride = c->down.in_features;
    b->copy(b, c->residual.data, c->start.data, c->start.bytes, NULL);
    assert_true(b->linear_residual(b, &o));
    if (apart) assert_int_equal(b->stream_synchronize(b, NULL, &err), STATUS_OK);
    assert_true(b->gate_up(b, &gate_up));
    if (apart) assert_int_equal(b->stream_synchronize(b, NULL, &err), STATUS_OK);
    assert_true(b->linear_residual(b, &down));
    if (apart) assert_int_equal(b->stream_synchronize(b, NULL, &err), STATUS_OK);
    assert_true(b->norm_linear(b, &qkv));
}

/* The layer's results; free them. */
static uint8_t *layer_results(struct layer_case *c)
{
    uint8_t *results = malloc((size_t)(c->residual.bytes + c->qkv.bytes));
    tensor_download(&c->residual), tensor_download(&c->qkv);
    memcpy(results, c->residual.host, (size_t)c->residual.bytes);
    memcpy(results + c->residual.bytes, c->qkv.host, (size_t)c->qkv.bytes);
    return results;
}

static void check_layer(struct layer_case *c, int32_t times)
{
    struct backend *b = c->gpu->b;
    struct error err;
    backend_graph graph = NULL;
    compute_layer(c, true);
    uint8_t *expected = layer_results(c);
    assert_int_equal(b->capture_begin(b, &err), STATUS_OK);
    compute_layer(c, false);
    assert_int_equal(b->capture_end(b, &graph, &err), STATUS_OK);
    for (int i = 0; i < times; i++) {
        b->fill(b, c->qkv.data, 0xff, c->qkv.bytes);
        if (i % 2) {
            compute_layer(c, false);
        } else {
            b->graph_launch(b, graph);
        }
        uint8_t *results = layer_results(c);
        assert_memory_equal(results, expected, (size_t)(c->residual.bytes + c->qkv.bytes));
        free(results);
    }
    b->graph_destroy(b, graph);
    check_workspace(c->gpu);
    free(expected);
}

/* The matmuls of a layer in a row, which a GPU may compute in one kernel, have the bits of each on its own: with fewer
 * tiles than blocks, a last tile that is not full, tiles in parts. */
static void matmuls_in_a_row(void **state)
{
    struct kernel_test *test = *state;
    struct test_backend *gpu = kernel_test_gpu(test);
    static const int64_t shapes[][3] = {{64, 96, 200}, {520, 1000, 777}, {200, 14336, 1512}, {2048, 2816, 3072}};
    workspace_for(gpu, 2 * 14336, 14336);
    for (int32_t tokens = 1; tokens <= FUSED_MAX_TOKENS; tokens++)
        for (int i = 0; i < 4; i++) {
            const enum dtype dtype = (tokens + i) % 2 ? DTYPE_BFLOAT16 : DTYPE_FLOAT16;
            const struct layer_shape shape = {tokens, shapes[i][0], shapes[i][1], shapes[i][2], dtype};
            struct layer_case c = layer_case_new(gpu, &test->random, &shape);
            check_layer(&c, tokens == 1 ? 1000 : 20);
            layer_case_free(&c);
        }
}

/* A thread that creates and destroys streams and events, as those that upload the weights do. */
struct stream_maker {
    struct backend *b;
    pthread_t thread;
    bool stops;
    enum status status;
    struct error err;
};

static void *make_streams(void *argument)
{
    struct stream_maker *m = argument;
    struct backend *b = m->b;
    while (m->status == STATUS_OK && !__atomic_load_n(&m->stops, __ATOMIC_RELAXED)) {
        backend_stream stream = NULL;
        backend_event event = NULL;
        m->status = b->stream_create(b, &stream, &m->err);
        for (int i = 0; i < 100 && m->status == STATUS_OK; i++) {
            m->status = b->event_create(b, &event, &m->err);
            b->event_destroy(b, event);
        }
        b->stream_destroy(b, stream);
    }
    return NULL;
}

/* What other threads do on streams of their own changes nothing about the matmuls in a row. */
static void matmuls_in_a_row_beside_a_thread(void **state)
{
    struct kernel_test *test = *state;
    struct test_backend *gpu = kernel_test_gpu(test);
    const struct layer_shape shape = {1, 64, 96, 200, DTYPE_BFLOAT16};
    static struct stream_maker maker; /* outlives a failure */
    maker = (struct stream_maker){.b = gpu->b};
    workspace_for(gpu, 200, 96);
    struct layer_case c = layer_case_new(gpu, &test->random, &shape);
    assert_int_equal(pthread_create(&maker.thread, NULL, make_streams, &maker), 0);
    check_layer(&c, 5000);
    __atomic_store_n(&maker.stops, true, __ATOMIC_RELAXED);
    pthread_join(maker.thread, NULL);
    if (maker.status != STATUS_OK) fail_msg("%s", maker.err.text);
    layer_case_free(&c);
}

/* More tokens: tiles in parts and whole ones, of 64 and of 128 output features, with a last tile that is not full. */
static void batches_match_the_plain_ones(void **state)
{
    struct kernel_test *test = *state;
    struct test_backend *gpu = kernel_test_gpu(test);
    static const int64_t shapes[][2] = {{16, 64}, {202, 520}, {2048, 2048}, {3072, 1032}, {1000, 4096}, {17010, 136}};
    static const int32_t tokens[] = {9, 16, 17, 32, 33, 48, 63, 64};
    workspace_for(gpu, 17010, 4096);
    if (!has_fused_batches(gpu, &test->random)) skip();
    for (size_t n = 0; n < sizeof tokens / sizeof *tokens; n++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            const enum dtype dtype = (n + i) % 2 ? DTYPE_BFLOAT16 : DTYPE_FLOAT16;
            const struct fused_shape shape = {tokens[n], shapes[i][0], shapes[i][1], dtype, dtype, (n + i) % 3 == 0};
            struct fused_case c = fused_case_new(gpu, &test->random, &shape);
            c.limit = i == 2 ? 0.5f : 0;
            check_linear_residual(&c, &test->random);
            for (int k = 0; k < NUM_GATE_ACTIVATIONS; k++) check_gate_up(&c, false, (enum activation)k);
            check_up(&c, false, ACTIVATION_RELU2);
            fused_case_free(&c);
        }
}

static void batches_of_quantized_weights(void **state)
{
    struct kernel_test *test = *state;
    struct test_backend *gpu = kernel_test_gpu(test);
    static const int32_t tokens[] = {9, 16, 17, 32, 33, 64, 65, 128, 129, 256, 300};
    workspace_for_quantized(gpu, 300);
    const bool has_gates = has_fused_batches(gpu, &test->random);
    for (size_t n = 0; n < sizeof tokens / sizeof *tokens; n++)
        for (int i = 0; i < 7 * 3 && (has_gates || tokens[n] <= 129); i++) {
            struct fused_case c = quantized_case_new(gpu, &test->random, tokens[n], i);
            check_linear_residual(&c, &test->random);
            if (has_gates) check_gate_up(&c, false, (enum activation)(i % NUM_GATE_ACTIVATIONS));
            fused_case_free(&c);
        }
}

/* The root mean square of every stride-th element, from `first` on. */
static double mean_of(const struct tensor *t, int64_t first, int64_t stride)
{
    double squares = 0;
    for (int64_t i = first; i < t->count; i += stride) squares += tensor_get(t, i) * tensor_get(t, i);
    return sqrt(squares * (double)stride / (double)t->count);
}

/* Each element, within two roundings of 16 bits and a small part of what those of its output feature are on average,
 * because many tokens may be multiplied by weights that have been rounded to 16 bits, and their sums be added in 16
 * bits. A feature whose weights are nearly 0 gets a little of what all elements are on average. */
static void check_elements(const struct fused_case *c, struct tensor *out, struct tensor *expected)
{
    tensor_download(out), tensor_download(expected);
    const double little = 0.002 * mean_of(expected, 0, 1);
    for (int64_t feature = 0; feature < c->weight.out_features; feature++) {
        const double tolerance = 0.02 * mean_of(expected, feature, c->weight.out_features) + little;
        for (int64_t i = feature; i < out->count; i += c->weight.out_features) {
            const double value = tensor_get(out, i), is = tensor_get(expected, i);
            if (!(fabs(value - is) <= tolerance + fabs(is) / 64))
                fail_msg("%d x %lld x %lld, format %d, groups of %lld, %s: element %lld is %g instead of %g", c->tokens,
                         (long long)c->weight.out_features, (long long)c->weight.in_features, (int)c->weight.format,
                         (long long)c->weight.group_size, dtype_name(c->dtype), (long long)i, value, is);
        }
    }
    tensor_free(out), tensor_free(expected);
}

/* A matmul of all tokens is what matmuls of up to 64 of them are. */
static void check_linear_of_parts(struct fused_case *c, enum dtype out_dtype)
{
    struct backend *b = c->gpu->b;
    const int64_t row = c->weight.in_features * dtype_size(c->dtype);
    const int64_t out_row = c->weight.out_features * dtype_size(out_dtype);
    const int32_t parts = (c->tokens + 63) / 64, part = (c->tokens + parts - 1) / parts;
    struct tensor out = tensor_poison(b, out_dtype, c->tokens * c->weight.out_features);
    struct tensor expected = tensor_poison(b, out_dtype, c->tokens * c->weight.out_features);
    const struct linear_args all = linear_of(&out, &c->x, &c->weight);
    b->linear(b, &all);
    for (int32_t first = 0; first < c->tokens; first += part) {
        struct linear_args some = linear_of(&expected, &c->x, &c->weight);
        some.num_tokens = c->tokens - first < part ? c->tokens - first : part;
        some.x = (const uint8_t *)some.x + first * row;
        some.out = (uint8_t *)some.out + first * out_row;
        b->linear(b, &some);
    }
    check_elements(c, &out, &expected);
}

/* On a GPU with 132 multiprocessors these reach every tile of linear_wgmma_quantized.cu for more than 128 tokens: one
 * and several of them, whole and split, full and not, with rows of out that are a multiple of 16 bytes and not. */
static void many_tokens_of_quantized_weights(void **state)
{
    struct kernel_test *test = *state;
    struct test_backend *gpu = kernel_test_gpu(test);
    static const struct {
        int32_t tokens;
        int64_t out_features, in_features;
    } shapes[] = {{150, 8480, 256}, {193, 8480, 384},  {301, 5664, 256}, {300, 8466, 256},
                  {300, 8464, 128}, {585, 2048, 2048}, {701, 3088, 384}, {800, 200, 256}};
    static const int64_t group_sizes[] = {128, 0, 64, 32};
    static const enum weight_format formats[] = {WEIGHT_INT4, WEIGHT_FP8, WEIGHT_INT8};
    workspace_for_quantized(gpu, 800);
    const bool has_gates = has_fused_batches(gpu, &test->random);
    for (int i = 0; i < 3 * (int)(sizeof shapes / sizeof *shapes); i++) {
        const int s = i / 3;
        const bool is_int4 = i % 3 == 0;
        const enum dtype dtype = i % 2 ? DTYPE_BFLOAT16 : DTYPE_FLOAT16;
        const int64_t group = group_sizes[(s / 2 + i) % 4];
        const struct fused_shape shape = {.tokens = shapes[s].tokens,
                                          .out_features = shapes[s].out_features,
                                          .in_features = shapes[s].in_features,
                                          .dtype = dtype,
                                          .gain_dtype = dtype,
                                          .bias = i % 4 < 2,
                                          .format = formats[i % 3],
                                          .group_size = group,
                                          .scale_rows = formats[i % 3] == WEIGHT_FP8 && group == 128 ? 128 : 1,
                                          .scale_dtype = is_int4 ? types[s % 3] : DTYPE_FLOAT32,
                                          .zeros = is_int4 && s % 3 != 1};
        struct fused_case c = fused_case_new(gpu, &test->random, &shape);
        check_linear_of_parts(&c, i % 5 == 4 ? DTYPE_FLOAT32 : dtype);
        if (has_gates) {
            check_linear_residual(&c, &test->random);
            check_gate_up(&c, false, (enum activation)(i % NUM_GATE_ACTIVATIONS));
        }
        fused_case_free(&c);
    }
}

/* Tokens so wide that not all of them fit into shared memory beside enough weights; with a number of output features
 * that is a multiple of four, and not. */
static void wide_tokens_are_added(void **state)
{
    struct kernel_test *test = *state;
    struct test_backend *gpu = kernel_test_gpu(test);
    workspace_for(gpu, 4100, 14336);
    for (int32_t tokens = 4; tokens <= FUSED_MAX_TOKENS; tokens++) {
        const enum dtype dtype = tokens % 2 ? DTYPE_BFLOAT16 : DTYPE_FLOAT16;
        const struct fused_shape shape = {tokens, tokens < 7 ? 4100 : 4099, tokens == 8 ? 14336 : 4104, dtype,
                                          dtype,  tokens % 2 == 0};
        struct fused_case c = fused_case_new(gpu, &test->random, &shape);
        check_linear_residual(&c, &test->random);
        fused_case_free(&c);
    }
}

/* Arguments that the fused operations do not take: they return false and write nothing. */
static void fused_operations_refuse(void **state)
{
    struct kernel_test *test = *state;
    struct test_backend *gpu = kernel_test_gpu(test);
    struct backend *b = gpu->b;
    workspace_for(gpu, 100, 100);
    const struct fused_shape shape = {2, 32, 64, DTYPE_BFLOAT16, DTYPE_FLOAT16, false};
    struct fused_case c = fused_case_new(gpu, &test->random, &shape);
    struct tensor float_bias = tensor_random(b, DTYPE_FLOAT32, 32, 1, &test->random);
    struct tensor out = tensor_poison(b, DTYPE_BFLOAT16, 64);
    const struct norm_params norm = norm_of(&c.gain);
    struct weight odd = c.weight, biased = c.weight;
    odd.in_features = 60;
    biased.bias = float_bias.data, biased.bias_dtype = DTYPE_FLOAT32;
    const struct linear_args plain = linear_of(&out, &c.x, &c.weight);
    struct linear_args odd_features = plain, other_type = plain, many_tokens = plain, other_bias = plain;
    odd_features.weight = &odd, odd_features.x_stride = 60;
    other_bias.weight = &biased;
    other_type.dtype = DTYPE_FLOAT16;
    many_tokens.num_tokens = 65;
    assert_false(b->norm_linear(b, &(struct norm_linear_args){plain, norm}));
    assert_false(b->linear_residual(b, &odd_features));
    assert_false(b->linear_residual(b, &other_bias));
    assert_false(b->linear_residual(b, &other_type));
    assert_false(b->linear_residual(b, &many_tokens));
    struct gate_up_args gate_up = {.linear = plain, .norm = &norm, .gate = {.activation = ACTIVATION_SILU}};
    gate_up.linear.out_stride = 16, gate_up.linear.num_tokens = FUSED_MAX_TOKENS + 1;
    assert_false(b->gate_up(b, &gate_up));
    tensor_download(&out);
    for (int64_t i = 0; i < out.bytes; i++) assert_int_equal(out.host[i], 0xff);
    tensor_free(&out), tensor_free(&float_bias);
    fused_case_free(&c);
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_of_tokens),
        cmocka_unit_test(batches),
        cmocka_unit_test(odd_shapes),
        cmocka_unit_test(large_weights),
        cmocka_unit_test(biases_of_any_type),
#ifdef QUIRE_HAVE_CUDA
        cmocka_unit_test(fused_operations_match_the_plain_ones),
        cmocka_unit_test(fused_operations_of_quantized_weights),
        cmocka_unit_test(fused_operations_of_segments),
        cmocka_unit_test(fused_operations_of_int4),
        cmocka_unit_test(matmuls_in_a_row),
        cmocka_unit_test(matmuls_in_a_row_beside_a_thread),
        cmocka_unit_test(batches_match_the_plain_ones),
        cmocka_unit_test(batches_of_quantized_weights),
        cmocka_unit_test(many_tokens_of_quantized_weights),
        cmocka_unit_test(wide_tokens_are_added),
        cmocka_unit_test(fused_operations_refuse),
#endif
    };
    cmocka_set_test_filter(getenv("QUIRE_TEST_FILTER"));
    return cmocka_run_group_tests(tests, kernel_test_setup, kernel_test_teardown);
}
