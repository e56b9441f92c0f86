/* Quantized rows on a GPU: what norms and gates write, against the quantization of what they write without; and matmuls
 * of such rows, against float64. Skipped where there is no GPU, or one other than Hopper. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/operations.h"

enum { GROUP = 128, MAX_TOKENS = 2048, NUM_CHECKED = 400 };

static const enum dtype types[] = {DTYPE_BFLOAT16, DTYPE_FLOAT16};

/* Quantized rows in device memory. */
struct rows {
    struct tensor data, scales;
    struct quantized_rows of;
    int64_t tokens, size, padded;
};

static struct rows rows_new(struct backend *b, int64_t tokens, int64_t size, int64_t group_size)
{
    struct rows r = {.tokens = tokens, .size = size, .padded = quantized_rows_padded(tokens)};
    r.data = tensor_poison(b, DTYPE_FP8_E4M3, r.padded * size);
    r.scales = tensor_poison(b, DTYPE_FLOAT32, r.padded * size / group_size);
    r.of = (struct quantized_rows){r.data.data, r.scales.data, group_size};
    return r;
}

static void rows_free(struct rows *r)
{
    tensor_free(&r->data), tensor_free(&r->scales);
}

static double rows_scale(const struct rows *r, int64_t t, int64_t i)
{
    return tensor_get(&r->scales, i / r->of.group_size * r->padded + t);
}

/* The rows are those of `plain`: each scale is the largest magnitude / 448, each element the nearest. */
static void check_rows(struct rows *r, struct tensor *plain)
{
    tensor_download(&r->data), tensor_download(&r->scales), tensor_download(plain);
    for (int64_t t = 0; t < r->tokens; t++)
        for (int64_t first = 0; first < r->size; first += r->of.group_size) {
            float largest = 0;
            for (int64_t i = first; i < first + r->of.group_size; i++)
                largest = fmaxf(largest, fabsf((float)tensor_get(plain, t * r->size + i)));
            const float scale = fmaxf(largest, 1e-12f) / 448, inverse = 1 / scale;
            assert_true((float)rows_scale(r, t, first) == scale);
            for (int64_t i = first; i < first + r->of.group_size; i++) {
                const float value = (float)tensor_get(plain, t * r->size + i) * inverse;
                assert_int_equal(r->data.host[t * r->size + i], reference_encode(DTYPE_FP8_E4M3, value));
            }
        }
}

struct rows_case {
    int32_t tokens, size;
    int64_t group_size;
    enum dtype dtype;
};

static const struct rows_case row_cases[] = {
    {1, 16, 16, DTYPE_FLOAT16},        {3, 4096, 4096, DTYPE_BFLOAT16},   {200, 1024, 1024, DTYPE_FLOAT16},
    {5, 14336, 14336, DTYPE_BFLOAT16}, {70, 4096, GROUP, DTYPE_BFLOAT16}, {3, 14336, GROUP, DTYPE_FLOAT16},
    {2, 128, GROUP, DTYPE_FLOAT32},    {6, 20480, 20480, DTYPE_FLOAT16},  {6, 17024, GROUP, DTYPE_BFLOAT16},
    {300, 2064, 2064, DTYPE_FLOAT32},  {140, 9216, 9216, DTYPE_BFLOAT16}};
enum { NUM_ROW_CASES = sizeof row_cases / sizeof *row_cases };

static struct test_backend *setup(void **state)
{
    struct test_backend *gpu = kernel_test_gpu(*state);
    const struct workspace_query query = {.max_num_tokens = MAX_TOKENS,
                                          .max_num_seqs = 64,
                                          .max_model_len = 64,
                                          .num_heads = 1,
                                          .head_size = 64,
                                          .block_size = 16,
                                          .max_in_features = 14336,
                                          .vocab_size = 4096};
    if (!strstr(gpu->b->description, "sm_90")) skip(); /* elsewhere cuBLASLt lacks some of these matmuls */
    use_workspace(gpu, &query);
    return gpu;
}

/* Rows of zeros become zeros. */
static void rows_are_quantized(void **state)
{
    struct kernel_test *test = *state;
    struct backend *b = setup(state)->b;
    for (int i = 0; i < NUM_ROW_CASES; i++) {
        const struct rows_case *c = &row_cases[i];
        const int64_t count = (int64_t)c->tokens * c->size;
        struct tensor x = tensor_random(b, c->dtype, count, 3, &test->random);
        for (int64_t k = 0; k < c->size && i % 2; k++) tensor_set(&x, count - c->size + k, 0);
        tensor_upload(&x);
        struct rows r = rows_new(b, c->tokens, c->size, c->group_size);
        const struct quantize_rows_args args = {&r.of, x.data, c->tokens, c->size, c->dtype};
        b->quantize_rows(b, &args);
        check_rows(&r, &x);
        tensor_free(&x);
        rows_free(&r);
    }
}

/* Both kinds of norms quantize, with and without an addition and a post norm before them. */
static void norms_quantize(void **state)
{
    struct kernel_test *test = *state;
    struct backend *b = setup(state)->b;
    for (int i = 0; i < 6 * NUM_ROW_CASES; i++) {
        const struct rows_case *c = &row_cases[i / 6];
        const int64_t count = (int64_t)c->tokens * c->size;
        struct tensor x = tensor_random(b, c->dtype, count, 3, &test->random);
        struct tensor again = tensor_bytes(b, x.host, x.bytes), residual[2];
        struct tensor gain = tensor_random(b, i % 2 ? c->dtype : DTYPE_FLOAT32, c->size, 2, &test->random);
        struct tensor out = tensor_poison(b, c->dtype, count);
        struct rows r = rows_new(b, c->tokens, c->size, c->group_size);
        struct norm_params norm = norm_of(&gain);
        norm.type = i % 6 < 4 ? NORM_RMS : NORM_LAYER;
        if (i % 6 % 2 == 0) {
            struct rms_norm_args args = rms_norm_of(&out, &x, &gain);
            args.norm = norm;
            b->rms_norm(b, &args);
            args.quantized = &r.of, args.out = NULL;
            b->rms_norm(b, &args);
        } else {
            residual[0] = tensor_random(b, c->dtype, count, 2, &test->random);
            residual[1] = tensor_bytes(b, residual[0].host, residual[0].bytes);
            struct fused_add_rms_norm_args args = fused_add_rms_norm_of(&out, &x, &residual[0], &gain);
            args.norm = norm, args.multiplier = 0.5f, args.post_norm = i % 6 == 3 ? &norm : NULL;
            b->fused_add_rms_norm(b, &args);
            args.x = again.data, args.residual = residual[1].data, args.quantized = &r.of, args.out = NULL;
            b->fused_add_rms_norm(b, &args);
            tensor_download(&residual[0]), tensor_download(&residual[1]);
            assert_memory_equal(residual[0].host, residual[1].host, (size_t)residual[0].bytes);
            tensor_free(&residual[0]), tensor_free(&residual[1]);
        }
        check_rows(&r, &out);
        tensor_free(&x), tensor_free(&again), tensor_free(&gain), tensor_free(&out);
        rows_free(&r);
    }
}

static void gates_quantize(void **state)
{
    struct kernel_test *test = *state;
    struct backend *b = setup(state)->b;
    for (int i = 0; i < NUM_ROW_CASES; i++) {
        const struct rows_case *c = &row_cases[i];
        const int64_t count = (int64_t)c->tokens * c->size;
        struct tensor x = tensor_random(b, c->dtype, 2 * count, 3, &test->random);
        struct tensor out = tensor_poison(b, c->dtype, count);
        struct rows r = rows_new(b, c->tokens, c->size, c->group_size);
        struct act_and_mul_args args = act_and_mul_of(&out, &x, c->tokens);
        args.activation = (enum activation)(i % NUM_GATE_ACTIVATIONS);
        b->act_and_mul(b, &args);
        args.quantized = &r.of, args.out = NULL;
        b->act_and_mul(b, &args);
        check_rows(&r, &out);
        tensor_free(&x), tensor_free(&out);
        rows_free(&r);
    }
}

struct matmul_case {
    int32_t tokens;
    int64_t out_features, in_features;
    bool blocks, bias;
    enum dtype dtype;
};

/* A weight [out_features, in_features] in FP8, with random scales. */
struct fp8_weight {
    struct tensor data, scales, bias;
    struct weight of;
};

/* An element of either sign, from 2 to 448. */
static uint8_t random_element(struct random *random)
{
    const uint64_t bits = random_bits(random);
    return (uint8_t)((bits & 0x80) | (0x40 + (bits >> 32) % 0x3f));
}

static struct fp8_weight weight_new(struct backend *b, const struct matmul_case *c, struct random *random)
{
    struct fp8_weight w;
    w.of = (struct weight){.format = WEIGHT_FP8,
                           .out_features = c->out_features,
                           .in_features = c->in_features,
                           .scale_dtype = DTYPE_FLOAT32,
                           .scale_rows = c->blocks ? GROUP : 1,
                           .group_size = c->blocks ? GROUP : c->in_features,
                           .quantize_x = true};
    w.data = tensor_poison(b, DTYPE_FP8_E4M3, c->out_features * c->in_features);
    for (int64_t i = 0; i < w.data.count; i++) w.data.host[i] = random_element(random);
    tensor_upload(&w.data);
    w.scales = tensor_random(b, DTYPE_FLOAT32, weight_scale_count(&w.of), 1, random);
    for (int64_t i = 0; i < w.scales.count; i++) tensor_set(&w.scales, i, 1e-4 + 1e-3 * fabs(tensor_get(&w.scales, i)));
    tensor_upload(&w.scales);
    w.bias = tensor_random(b, c->dtype, c->out_features, 3, random);
    w.of.data = w.data.data, w.of.scales = w.scales.data;
    w.of.bias = c->bias ? w.bias.data : NULL, w.of.bias_dtype = c->dtype;
    return w;
}

static void weight_free(struct fp8_weight *w)
{
    tensor_free(&w->data), tensor_free(&w->scales), tensor_free(&w->bias);
}

/* The relative errors of random elements of out: against the matmul of the quantized rows, and of x itself. */
static void check_matmul(const struct matmul_case *c, const struct fp8_weight *w, const struct rows *r,
                         const struct tensor *x, const struct tensor *out, struct random *random)
{
    double wrong = 0, whole = 0, all = 0, decoded[256];
    for (uint32_t i = 0; i < 256; i++) decoded[i] = reference_decode(DTYPE_FP8_E4M3, i);
    for (int k = 0; k < NUM_CHECKED; k++) {
        const int64_t t = (int64_t)(random_uniform(random) * c->tokens);
        const int64_t o = (int64_t)(random_uniform(random) * (double)c->out_features);
        const uint8_t *row = w->data.host + o * c->in_features, *x_row = r->data.host + t * c->in_features;
        const int64_t scale_row = o / w->of.scale_rows * weight_groups(&w->of);
        double sum = c->bias ? tensor_get(&w->bias, o) : 0, exact = sum;
        for (int64_t i = 0; i < c->in_features; i++) {
            const double scale = tensor_get(&w->scales, scale_row + i / w->of.group_size);
            sum += scale * decoded[row[i]] * rows_scale(r, t, i) * decoded[x_row[i]];
            exact += scale * decoded[row[i]] * tensor_get(x, t * c->in_features + i);
        }
        const double y = tensor_get(out, t * c->out_features + o);
        assert_true(isfinite(y));
        wrong += (y - sum) * (y - sum), whole += (y - exact) * (y - exact), all += exact * exact;
    }
    printf("%d x %lld x %lld%s%s, %s: error %.5f, with that of the quantization of x %.4f\n", c->tokens,
           (long long)c->out_features, (long long)c->in_features, c->blocks ? ", blocks" : "", c->bias ? ", bias" : "",
           dtype_name(c->dtype), sqrt(wrong / all), sqrt(whole / all));
    /* Sums of 14 bits, which cuBLASLt's are for a whole row. */
    assert_true(sqrt(wrong / all) < (c->tokens > 64 && c->in_features > 8192 ? 0.005 : 0.004));
    assert_true(sqrt(whole / all) < 0.04);
}

/* Directly, and twice from a graph: the same bits. */
static void run_matmul(struct backend *b, const struct linear_args *args, struct tensor *out, struct tensor *again)
{
    struct error err;
    backend_graph graph = NULL;
    struct linear_args captured = *args;
    b->linear(b, args);
    captured.out = again->data;
    assert_int_equal(b->capture_begin(b, &err), STATUS_OK);
    b->linear(b, &captured);
    assert_int_equal(b->capture_end(b, &graph, &err), STATUS_OK);
    for (int i = 0; i < 2; i++) {
        b->fill(b, again->data, 0xff, again->bytes);
        b->graph_launch(b, graph);
        tensor_download(out), tensor_download(again);
        const int64_t bytes = args->num_tokens * args->weight->out_features * dtype_size(args->dtype);
        assert_memory_equal(out->host, again->host, (size_t)bytes);
    }
    b->graph_destroy(b, graph);
}

static void check_case(struct test_backend *gpu, const struct matmul_case *c, struct random *random)
{
    struct backend *b = gpu->b;
    const int64_t padded = quantized_rows_padded(c->tokens);
    struct fp8_weight w = weight_new(b, c, random);
    struct tensor x = tensor_random(b, c->dtype, c->tokens * c->in_features, 3, random);
    struct tensor out = tensor_poison(b, c->dtype, padded * c->out_features);
    struct tensor again = tensor_poison(b, c->dtype, padded * c->out_features);
    assert_true(b->takes_quantized_rows(b, &w.of, c->tokens, c->dtype));
    struct rows r = rows_new(b, c->tokens, c->in_features, w.of.group_size);
    const struct quantize_rows_args rows = {&r.of, x.data, c->tokens, (int32_t)c->in_features, c->dtype};
    struct linear_args args = linear_of(&out, &x, &w.of);
    args.x = NULL, args.quantized_x = &r.of;
    b->quantize_rows(b, &rows);
    run_matmul(b, &args, &out, &again);
    tensor_download(&r.data), tensor_download(&r.scales);
    check_matmul(c, &w, &r, &x, &out, random);
    check_workspace(gpu);
    rows_free(&r);
    tensor_free(&x), tensor_free(&out), tensor_free(&again);
    weight_free(&w);
}

static void matmuls_match_float64(void **state)
{
    struct kernel_test *test = *state;
    struct test_backend *gpu = setup(state);
    static const int64_t shapes[][2] = {{6144, 4096}, {512, 14336}, {4096, 1024}, {1040, 2064}, {16, 512}};
    static const int32_t tokens[] = {9,  65, 96,  127, 128, 129, 200, 256, 300, 511,
                                     10, 16, 515, 17,  31,  32,  33,  48,  63,  64};
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < 20; k++)
            for (int variant = 0; variant < 4; variant++) {
                const struct matmul_case c = {.tokens = tokens[k],
                                              .out_features = shapes[i][0],
                                              .in_features = shapes[i][1],
                                              .blocks = variant >= 2,
                                              .bias = variant % 2,
                                              .dtype = types[(i + k + variant / 2) % 2]};
                if (k % 3 != i % 3 || (c.blocks && (c.tokens <= 16 || c.in_features % GROUP))) continue;
                check_case(gpu, &c, &test->random);
            }
}

/* The largest sums that there can be do not overflow. Sums are kept with 14 bits, and lose the most where all products
 * have one sign. */
static void sums_do_not_overflow(void **state)
{
    struct kernel_test *test = *state;
    struct test_backend *gpu = setup(state);
    struct backend *b = gpu->b;
    for (int i = 0; i < 4; i++) {
        const struct matmul_case c = {
            .tokens = i < 2 ? 100 : 20, .out_features = 256, .in_features = 14336, .dtype = types[i % 2]};
        struct fp8_weight w = weight_new(b, &c, &test->random);
        struct tensor x = tensor_random(b, c.dtype, c.tokens * c.in_features, 1, &test->random);
        struct tensor out = tensor_poison(b, c.dtype, c.tokens * c.out_features);
        struct rows r = rows_new(b, c.tokens, c.in_features, c.in_features);
        for (int64_t k = 0; k < w.data.count; k++) tensor_set(&w.data, k, 448);
        for (int64_t k = 0; k < w.scales.count; k++) tensor_set(&w.scales, k, 1e-4);
        for (int64_t k = 0; k < x.count; k++) tensor_set(&x, k, 2);
        tensor_upload(&w.data), tensor_upload(&w.scales), tensor_upload(&x);
        const struct quantize_rows_args rows = {&r.of, x.data, c.tokens, (int32_t)c.in_features, c.dtype};
        struct linear_args args = linear_of(&out, &x, &w.of);
        args.quantized_x = &r.of;
        assert_true(b->takes_quantized_rows(b, &w.of, c.tokens, c.dtype));
        b->quantize_rows(b, &rows);
        b->linear(b, &args);
        tensor_download(&out);
        printf("largest sums, %s: %.0f of %.0f\n", dtype_name(c.dtype), tensor_get(&out, 0), 448e-4 * 2 * 14336);
        const double expected = 448 * 1e-4 * 2 * (double)c.in_features;
        for (int64_t k = 0; k < out.count; k++) assert_true(fabs(tensor_get(&out, k) / expected - 1) < 0.03);
        tensor_free(&x), tensor_free(&out);
        rows_free(&r);
        weight_free(&w);
    }
}

/* A matmul of quantized rows, with and without its scales. */
struct product {
    struct fp8_weight w;
    struct rows rows;
    struct tensor x, scaled, unscaled;
    struct left_out_scales left_out;
};

static struct product product_new(struct backend *b, const struct matmul_case *c, struct random *random)
{
    struct product p = {.w = weight_new(b, c, random)};
    p.rows = rows_new(b, c->tokens, c->in_features, c->in_features);
    p.x = tensor_random(b, c->dtype, c->tokens * c->in_features, 3, random);
    p.scaled = tensor_poison(b, c->dtype, quantized_rows_padded(c->tokens) * c->out_features);
    p.unscaled = tensor_poison(b, c->dtype, quantized_rows_padded(c->tokens) * c->out_features);
    const struct quantize_rows_args rows = {&p.rows.of, p.x.data, c->tokens, (int32_t)c->in_features, c->dtype};
    struct linear_args args = linear_of(&p.scaled, &p.x, &p.w.of);
    assert_true(b->takes_quantized_rows(b, &p.w.of, c->tokens, c->dtype));
    b->quantize_rows(b, &rows);
    args.quantized_x = &p.rows.of;
    b->linear(b, &args);
    args.out = p.unscaled.data, args.left_out = &p.left_out;
    b->linear(b, &args);
    return p;
}

static void product_free(struct product *p)
{
    rows_free(&p->rows), weight_free(&p->w);
    tensor_free(&p->x), tensor_free(&p->scaled), tensor_free(&p->unscaled);
}

static void compare(struct test_backend *gpu, const char *what, struct tensor *out, struct tensor *expected)
{
    tensor_download(out), tensor_download(expected);
    double *values = tensor_doubles(expected);
    check_close(gpu, what, out, values, out->count, out->dtype);
    free(values);
    tensor_free(out), tensor_free(expected);
}

static void add_product(struct test_backend *gpu, const struct matmul_case *c, bool post_norm, struct random *random)
{
    struct backend *b = gpu->b;
    struct product p = product_new(b, c, random);
    const int64_t count = c->tokens * c->out_features;
    struct tensor gain = tensor_random(b, c->dtype, c->out_features, 2, random);
    struct tensor residual[2] = {tensor_random(b, c->dtype, count, 2, random)}, out[2];
    const struct norm_params norm = norm_of(&gain);
    residual[1] = tensor_bytes(b, residual[0].host, residual[0].bytes);
    residual[1].dtype = c->dtype, residual[1].count = count;
    for (int i = 0; i < 2; i++) {
        out[i] = tensor_poison(b, c->dtype, count);
        struct fused_add_rms_norm_args args =
            fused_add_rms_norm_of(&out[i], i ? &p.unscaled : &p.scaled, &residual[i], &gain);
        args.num_tokens = c->tokens;
        args.post_norm = post_norm ? &norm : NULL;
        if (i) args.x_scales = p.left_out;
        b->fused_add_rms_norm(b, &args);
    }
    compare(gpu, "fused_add_rms_norm with scales", &out[1], &out[0]);
    compare(gpu, "residual with scales", &residual[1], &residual[0]);
    tensor_free(&gain);
    product_free(&p);
}

static void gate_product(struct test_backend *gpu, const struct matmul_case *c, struct random *random)
{
    struct product p = product_new(gpu->b, c, random);
    struct tensor out[2];
    for (int i = 0; i < 2; i++) {
        out[i] = tensor_poison(gpu->b, c->dtype, c->tokens * c->out_features / 2);
        struct act_and_mul_args args = act_and_mul_of(&out[i], i ? &p.unscaled : &p.scaled, c->tokens);
        args.size = (int32_t)(c->out_features / 2);
        if (i) args.gate_up_scales = p.left_out;
        gpu->b->act_and_mul(gpu->b, &args);
    }
    compare(gpu, "act_and_mul with scales", &out[1], &out[0]);
    product_free(&p);
}

/* Scales that linear leaves out are multiplied by the operations that read its result. */
static void scales_may_be_left_out(void **state)
{
    struct kernel_test *test = *state;
    struct test_backend *gpu = setup(state);
    for (int i = 0; i < 8; i++) {
        const struct matmul_case c = {.tokens = i % 3 == 0   ? 100
                                                : i % 3 == 1 ? 129
                                                             : 700,
                                      .out_features = i < 4 ? 2048 : 9216,
                                      .in_features = 1024,
                                      .dtype = types[i / 2 % 2]};
        add_product(gpu, &c, false, &test->random);
        add_product(gpu, &c, true, &test->random);
        gate_product(gpu, &c, &test->random);
    }
}

/* Weights, types and numbers of tokens that are computed otherwise. */
static void other_weights_are_refused(void **state)
{
    struct kernel_test *test = *state;
    struct backend *b = setup(state)->b;
    const struct matmul_case c = {.tokens = 128, .out_features = 256, .in_features = 512, .dtype = DTYPE_BFLOAT16};
    struct fp8_weight w = weight_new(b, &c, &test->random);
    struct weight odd = w.of, weights_only = w.of, groups = w.of, int8 = w.of;
    odd.in_features = odd.group_size = 500;
    weights_only.quantize_x = false;
    groups.group_size = GROUP;
    int8.format = WEIGHT_INT8;
    assert_true(b->takes_quantized_rows(b, &w.of, 128, DTYPE_BFLOAT16));
    assert_false(b->takes_quantized_rows(b, &w.of, 8, DTYPE_BFLOAT16));
    assert_false(b->takes_quantized_rows(b, &w.of, 128, DTYPE_FLOAT32));
    assert_false(b->takes_quantized_rows(b, &odd, 128, DTYPE_BFLOAT16));
    assert_false(b->takes_quantized_rows(b, &weights_only, 128, DTYPE_BFLOAT16));
    assert_false(b->takes_quantized_rows(b, &groups, 128, DTYPE_BFLOAT16));
    assert_false(b->takes_quantized_rows(b, &int8, 128, DTYPE_BFLOAT16));
    weight_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_quantized),
        cmocka_unit_test(norms_quantize),
        cmocka_unit_test(gates_quantize),
        cmocka_unit_test(matmuls_match_float64),
        cmocka_unit_test(sums_do_not_overflow),
        cmocka_unit_test(scales_may_be_left_out),
        cmocka_unit_test(other_weights_are_refused),
    };
    cmocka_set_test_filter(getenv("QUIRE_TEST_FILTER"));
    return cmocka_run_group_tests(tests, kernel_test_setup, kernel_test_teardown);
}
