/* Matmuls with quantized weights, against float64, on each backend of this machine.
 *
 * The tolerance follows from what a backend may round. A CPU backend with vectors rounds x to 8 bits, with a scale for
 * each 32 columns (FP8 weights: it does not). A GPU rounds x to FP8 where the weight allows it, and scales and elements
 * of the weight to the type of x. The scalar backend rounds nothing. An element that is rounded to a multiple of a step
 * is off by at most half a step and, over many elements, by step / sqrt(12). The errors of a sum add up as their
 * squares. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/operations.h"

static const enum dtype types[] = {DTYPE_FLOAT32, DTYPE_FLOAT16, DTYPE_BFLOAT16};
static const enum weight_format formats[] = {WEIGHT_FP8, WEIGHT_INT8, WEIGHT_INT4};
static const char *const format_names[] = {
    [WEIGHT_FP8] = "fp8", [WEIGHT_INT8] = "int8", [WEIGHT_INT4] = "int4", [WEIGHT_MXFP4] = "mxfp4"};

struct quantized_case {
    enum weight_format format;
    int32_t num_tokens;
    int64_t out_features, in_features, group_size; /* group_size 0: the whole row */
    int64_t scale_rows;                            /* 0: 1 */
    enum dtype scale_dtype, dtype, out_dtype, bias_dtype;
    bool bias, zeros, ordered, quantize_x;
    int64_t x_pad, out_pad; /* elements between tokens: NaN in x, left alone in out */
};

/* A quantized weight on a device, and what its elements stand for. */
struct quantized_weight {
    struct tensor data, scales, zeros, order, bias;
    struct weight weight;
    double *elements; /* [out_features, in_features] by input feature */
};

/* FP8 has no NaN in it; its scales, and those of the others, make elements of up to about 1. */
static void make_data(struct quantized_weight *q, struct backend *b, struct random *random)
{
    struct weight *w = &q->weight;
    static const double largest_of[] = {[WEIGHT_FP8] = 448, [WEIGHT_INT8] = 127, [WEIGHT_INT4] = 8, [WEIGHT_MXFP4] = 6};
    const double largest = largest_of[w->format];
    q->data = tensor_random_bytes(b, w->out_features * weight_row_bytes(w), 255, random);
    for (int64_t i = 0; i < q->data.count && w->format == WEIGHT_FP8; i++)
        if ((q->data.host[i] & 0x7f) == 0x7f) q->data.host[i] ^= 0x10;
    tensor_upload(&q->data);
    q->scales = tensor_poison(b, w->scale_dtype, weight_scale_count(w));
    for (int64_t i = 0; i < q->scales.count; i++)
        tensor_set(&q->scales, i, (0.5 + random_uniform(random)) / largest * (i % 17 ? 1 : 0.01));
    tensor_upload(&q->scales);
    w->data = q->data.data, w->scales = q->scales.data;
}

static void make_order(struct quantized_weight *q, struct backend *b, struct random *random)
{
    const int64_t n = q->weight.in_features;
    int32_t *order = malloc(sizeof *order * (size_t)n);
    for (int64_t i = 0; i < n; i++) {
        const int64_t j = random_between(random, 0, i);
        order[i] = order[j], order[j] = (int32_t)i;
    }
    q->order = tensor_bytes(b, order, n * (int64_t)sizeof *order);
    q->weight.input_order = q->order.data;
    free(order);
}

/* Element [o][i] of data, from the formats' definitions. */
static double stored(const struct quantized_weight *q, int64_t o, int64_t i, double zero)
{
    static const double e2m1[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    const struct weight *w = &q->weight;
    if (w->format == WEIGHT_FP8) return reference_decode(DTYPE_FP8_E4M3, q->data.host[o * w->in_features + i]);
    if (w->format == WEIGHT_INT8) return (int8_t)q->data.host[o * w->in_features + i];
    const int byte = q->data.host[(o * w->in_features + i) / 2];
    const int half = i % 2 ? byte / 16 : byte % 16;
    return w->format == WEIGHT_MXFP4 ? (half < 8 ? 1 : -1) * e2m1[half % 8] : half - zero;
}

static void make_elements(struct quantized_weight *q)
{
    const struct weight *w = &q->weight;
    const int64_t n = w->in_features, groups = (n + w->group_size - 1) / w->group_size;
    q->elements = malloc(sizeof(double) * (size_t)(w->out_features * n));
    for (int64_t o = 0; o < w->out_features; o++)
        for (int64_t i = 0; i < n; i++) {
            const int64_t group = i / w->group_size;
            const int64_t feature = w->input_order ? ((const int32_t *)q->order.host)[i] : i;
            q->elements[o * n + feature] = tensor_get(&q->scales, o / w->scale_rows * groups + group) *
                                           stored(q, o, i, w->zeros ? q->zeros.host[o * groups + group] : 8);
        }
}

static struct quantized_weight make_weight(struct test_backend *tb, const struct quantized_case *c)
{
    struct backend *b = tb->b;
    struct quantized_weight q = {.weight = {.format = c->format,
                                            .out_features = c->out_features,
                                            .in_features = c->in_features,
                                            .scale_dtype = c->scale_dtype,
                                            .scale_rows = c->scale_rows ? c->scale_rows : 1,
                                            .group_size = c->group_size ? c->group_size : c->in_features,
                                            .quantize_x = c->quantize_x}};
    make_data(&q, b, tb->random);
    if (c->zeros) {
        q.zeros = tensor_random_bytes(b, c->out_features * weight_groups(&q.weight), 15, tb->random);
        q.weight.zeros = q.zeros.data;
    }
    if (c->ordered) make_order(&q, b, tb->random);
    if (c->bias) {
        q.bias = tensor_random(b, c->bias_dtype, c->out_features, 3, tb->random);
        q.weight.bias = q.bias.data, q.weight.bias_dtype = c->bias_dtype;
    }
    make_elements(&q);
    if (b->weight_prepare) b->weight_prepare(b, &q.weight);
    return q;
}

static void free_weight(struct quantized_weight *q)
{
    struct tensor *tensors[] = {&q->data, &q->scales, &q->zeros, &q->order, &q->bias};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        if (tensors[i]->host) tensor_free(tensors[i]);
    free(q->elements);
}

/* Sets each element of x_errors to half the largest step to which a backend may round that element of x. */
static void errors_of_x(const struct test_backend *tb, const struct quantized_case *c, const struct quantized_weight *q,
                        const double *x, double *x_errors)
{
    const bool to_fp8 = tb->b->discrete && c->quantize_x;
    const bool to_int8 = !tb->b->discrete && strcmp(tb->name, "cpu scalar") != 0 && c->format != WEIGHT_FP8;
    const int64_t n = c->in_features, group = to_int8 ? 32 : n;
    const int32_t *order = c->ordered ? (const int32_t *)q->order.host : NULL;
    for (int64_t t = 0; t < c->num_tokens; t++)
        for (int64_t start = 0; start < n; start += group) {
            const int64_t end = start + group < n ? start + group : n;
            double largest = 0;
            for (int64_t i = start; i < end; i++) largest = fmax(largest, fabs(x[t * n + (order ? order[i] : i)]));
            for (int64_t i = start; i < end; i++) {
                const int64_t feature = t * n + (order ? order[i] : i);
                x_errors[feature] = to_int8  ? largest / 127 / 2
                                    : to_fp8 ? fmax(fabs(x[feature]) / 16, largest / 448 / 1024)
                                             : 0;
            }
        }
}

/* Half a unit of the last place, relative to the value. */
static double rounding(enum dtype dtype)
{
    return dtype == DTYPE_FLOAT32 ? 0x1p-24 : dtype == DTYPE_FLOAT16 ? 0x1p-11 : 0x1p-8;
}

struct sums {
    double value, variance, bound; /* the result, and of its error */
};

static struct sums sums_of(const double *x, const double *x_errors, const double *w, double w_error, int64_t n)
{
    double value = 0, variance = 0, bound = 0;
#pragma omp simd reduction(+ : value, variance, bound)
    for (int64_t i = 0; i < n; i++) {
        const double dx = fabs(x_errors[i] * w[i]), dw = fabs(x[i] * w[i] * w_error);
        value += x[i] * w[i];
        variance += (dx * dx + 2 * dw * dw) / 3; /* the scale is rounded, and then the element */
        bound += dx + 2 * dw;
    }
    return (struct sums){value, variance, bound};
}

struct product {
    struct sums *sums;              /* [tokens, m] */
    const double *x, *x_errors, *w; /* [tokens, n], [tokens, n], [m, n] */
    double w_error;
    int64_t n, m;
};

static void sum_of(void *product, int64_t i, int thread)
{
    (void)thread;
    const struct product *p = product;
    const int64_t token = i / p->m, feature = i % p->m, n = p->n;
    p->sums[i] = sums_of(p->x + token * n, p->x_errors + token * n, p->w + feature * n, p->w_error, n);
}

/* Each element within its bound, and all together within what is to be expected of that many. */
static void check_result(const struct test_backend *tb, const struct quantized_case *c,
                         const struct quantized_weight *q, const double *x, const struct tensor *out, const char *what)
{
    const int64_t n = c->in_features, m = c->out_features;
    const double w_error = tb->b->discrete && c->dtype != DTYPE_FLOAT32 ? rounding(c->dtype) : 0;
    double *x_errors = malloc(sizeof(double) * (size_t)(c->num_tokens * n)), squares = 0, variance = 0, error = 0;
    errors_of_x(tb, c, q, x, x_errors);
    struct sums *sums = malloc(sizeof *sums * (size_t)(c->num_tokens * m));
    struct product product = {sums, x, x_errors, q->elements, w_error, n, m};
    reference_for(c->num_tokens * m, sum_of, &product);
    for (int64_t i = 0; i < c->num_tokens * m; i++) {
        sums[i].value += c->bias ? tensor_get(&q->bias, i % m) : 0;
        squares += sums[i].value * sums[i].value, variance += sums[i].variance;
    }
    const double norm = sqrt(squares), mean = norm / sqrt((double)(c->num_tokens * m));
    for (int64_t i = 0; i < c->num_tokens * m; i++) {
        const double difference = fabs(tensor_get(out, i) - sums[i].value);
        const double floats = 1e-4 * mean + 2 * rounding(c->out_dtype) * fabs(sums[i].value);
        if (!(difference <= sums[i].bound + floats))
            fail_msg("%s: %s: element %lld is %g instead of %g: off by more than %.3g", tb->name, what, (long long)i,
                     tensor_get(out, i), sums[i].value, sums[i].bound + floats);
        error += difference * difference;
    }
    const double tolerance = 5 * sqrt(variance) + (1e-5 + rounding(c->out_dtype)) * norm;
    if (!(sqrt(error) <= tolerance))
        fail_msg("%s: %s: ||out - reference|| = %.3g, above %.3g; ||reference|| = %.3g", tb->name, what, sqrt(error),
                 tolerance, norm);
    free(x_errors), free(sums);
}

static void check_linear(struct test_backend *tb, const struct quantized_case *c)
{
    if (!kernel_test_takes(tb)) return;
    char what[300];
    const int64_t x_stride = c->in_features + c->x_pad, out_stride = c->out_features + c->out_pad;
    struct quantized_weight q = make_weight(tb, c);
    struct tensor x = tensor_poison(tb->b, c->dtype, c->num_tokens * x_stride);
    struct tensor out = tensor_poison(tb->b, c->out_dtype, c->num_tokens * out_stride);
    for (int64_t t = 0; t < c->num_tokens; t++)
        for (int64_t i = 0; i < c->in_features; i++)
            tensor_set(&x, t * x_stride + i, (2 * random_uniform(tb->random) - 1) * (i % 50 ? 1 : 20));
    tensor_upload(&x);
    struct linear_args args = linear_of(&out, &x, &q.weight);
    args.num_tokens = c->num_tokens, args.out_stride = out_stride, args.x_stride = x_stride;
    tb->b->linear(tb->b, &args);
    tensor_download(&out);
    snprintf(what, sizeof what, "%d x %lld x %lld, %s in groups of %lld x %lld, scales %s%s%s%s%s, %s to %s",
             c->num_tokens, (long long)c->out_features, (long long)c->in_features, format_names[c->format],
             (long long)q.weight.scale_rows, (long long)q.weight.group_size, dtype_name(c->scale_dtype),
             c->zeros ? ", zeros" : "", c->ordered ? ", ordered" : "", c->bias ? ", bias" : "",
             c->quantize_x ? ", quantize_x" : "", dtype_name(c->dtype), dtype_name(c->out_dtype));
    double *xs = tensor_rows(&x, c->num_tokens, c->in_features, x_stride);
    tensor_close_up(tb, &out, c->num_tokens, c->out_features, out_stride);
    check_result(tb, c, &q, xs, &out, what);
    check_workspace(tb);
    free(xs);
    tensor_free(&x), tensor_free(&out);
    free_weight(&q);
}

/* Rows by `count` weights that lie one behind the other, sizes[s] of them by weight s; two rows at either end belong to
 * none. */
static void check_segments(struct test_backend *tb, const struct quantized_case *c, const int32_t *sizes, int32_t count)
{
    enum { MAX_SEGMENTS = 64 };
    if (!kernel_test_takes(tb)) return;
    const int64_t n = c->in_features, m = c->out_features;
    int32_t starts[MAX_SEGMENTS + 1] = {2};
    for (int32_t s = 0; s < count; s++) starts[s + 1] = starts[s] + sizes[s];
    struct quantized_case all = *c;
    all.out_features = count * m;
    struct quantized_weight q = make_weight(tb, &all);
    q.weight.out_features = m;
    struct tensor x = tensor_random(tb->b, c->dtype, (starts[count] + 2) * n, 1, tb->random);
    struct tensor out = tensor_poison(tb->b, c->out_dtype, (starts[count] + 2) * m);
    struct tensor device_starts = tensor_bytes(tb->b, starts, (count + 1) * (int64_t)sizeof *starts);
    struct linear_args args = linear_of(&out, &x, &q.weight);
    args.segments = (struct row_segments){device_starts.data, count};
    tb->b->linear(tb->b, &args);
    tensor_download(&out);
    double *xs = tensor_doubles(&x);
    for (int32_t s = 0; s < count; s++) {
        char what[200];
        struct quantized_weight of_segment = q;
        struct quantized_case part = *c;
        struct tensor rows = out;
        part.num_tokens = sizes[s];
        rows.host += starts[s] * m * dtype_size(c->out_dtype);
        of_segment.elements += s * m * n;
        if (c->bias) of_segment.bias.host += s * m * dtype_size(c->bias_dtype);
        snprintf(what, sizeof what, "segment %d of %d, %d rows, %lld x %lld, %s in groups of %lld x %lld, %s to %s", s,
                 count, sizes[s], (long long)m, (long long)n, format_names[c->format], (long long)q.weight.scale_rows,
                 (long long)q.weight.group_size, dtype_name(c->dtype), dtype_name(c->out_dtype));
        check_result(tb, &part, &of_segment, xs + starts[s] * n, &rows, what);
    }
    for (int64_t i = 0; i < 4 * m; i++) assert_true(isnan(tensor_get(&out, i < 2 * m ? i : out.count - 1 - i + 2 * m)));
    check_workspace(tb);
    free(xs);
    tensor_free(&x), tensor_free(&out), tensor_free(&device_starts);
    free_weight(&q);
}

/* Workspace for matmuls of up to that many tokens, input and output features. */
static void workspace_for(struct test_backend *tb, int32_t num_tokens, int64_t in_features, int64_t out_features)
{
    const struct workspace_query query = {.max_num_tokens = num_tokens,
                                          .max_num_seqs = 1,
                                          .max_model_len = 16,
                                          .num_heads = 1,
                                          .head_size = 64,
                                          .block_size = 16,
                                          .max_in_features = in_features,
                                          .vocab_size = 16,
                                          .max_quantized_elements = in_features * out_features};
    use_workspace(tb, &query);
}

/* Numbers of tokens on both sides of every kernel's limit. */
static void few_and_many_tokens(struct test_backend *tb)
{
    static const int32_t counts[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12,  13,  14,  15,  16,  17,  18,
                                     20, 27, 28, 29, 31, 32, 33, 48, 63, 64, 65, 100, 128, 129, 255, 256, 257, 300};
    workspace_for(tb, 300, 640, 200);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int f = 0; f < 3; f++) {
            const struct quantized_case c = {.format = formats[f],
                                             .num_tokens = counts[i],
                                             .out_features = i % 2 ? 196 : 128,
                                             .in_features = 640,
                                             .group_size = i % 3 ? 128 : 0,
                                             .dtype = types[i % 4 ? 2 : i % 3],
                                             .out_dtype = types[i % 4 ? 2 : i % 3],
                                             .scale_dtype = types[formats[f] == WEIGHT_INT4 ? i % 3 : 0],
                                             .zeros = formats[f] == WEIGHT_INT4 && i % 2,
                                             .ordered = formats[f] == WEIGHT_INT4 && i % 4 > 1,
                                             .quantize_x = i % 5 < 2};
            check_linear(tb, &c);
        }
}

/* Every group size with every type of scale, zeros and order. */
static void every_group_size(struct test_backend *tb)
{
    static const int64_t sizes[] = {32, 64, 128, 256, 0};
    static const int32_t tokens[] = {1, 5, 40};
    workspace_for(tb, 40, 1280, 80);
    for (int i = 0; i < 5 * 3 * 2 * 2 * 3; i++) {
        const struct quantized_case c = {.format = i % 2 ? WEIGHT_INT4 : formats[i / 2 % 3],
                                         .num_tokens = tokens[i / 60],
                                         .out_features = 72,
                                         .in_features = i % 7 ? 1280 : 1024,
                                         .group_size = sizes[i % 5],
                                         .scale_dtype = types[i / 5 % 3],
                                         .dtype = types[i % 3],
                                         .out_dtype = types[i / 2 % 3],
                                         .bias_dtype = types[i / 3 % 3],
                                         .bias = i % 4 == 0,
                                         .zeros = i % 2 && i / 15 % 2,
                                         .ordered = i / 30 % 2 && i % 2};
        check_linear(tb, &c);
    }
}

/* INT4 is in groups of 128 and more, for which few tokens of bfloat16 have a kernel of their own. */
static void int4_with_few_tokens(struct test_backend *tb)
{
    static const int64_t shapes[][3] = {{8, 128, 0},      {70, 384, 128},   {200, 4224, 384}, {1001, 1024, 256},
                                        {72, 14336, 128}, {9000, 256, 128}, {136, 4224, 128}, {40, 2048, 0}};
    workspace_for(tb, 8, 14336, 200);
    for (int i = 0; i < 8 * 8; i++) {
        const int64_t *shape = shapes[i % 8];
        const struct quantized_case c = {.format = WEIGHT_INT4,
                                         .num_tokens = 1 + i / 8,
                                         .out_features = shape[0],
                                         .in_features = shape[1],
                                         .group_size = shape[2],
                                         .scale_dtype = types[(i + i / 8) % 3],
                                         .dtype = DTYPE_BFLOAT16,
                                         .out_dtype = i % 3 ? DTYPE_BFLOAT16 : DTYPE_FLOAT32,
                                         .bias_dtype = DTYPE_BFLOAT16,
                                         .bias = i % 5 == 0,
                                         .zeros = (i + i / 8) % 2,
                                         .x_pad = i / 8 % 2 * 8,
                                         .out_pad = i % 7};
        check_linear(tb, &c);
    }
}

/* Batches around every size that a GPU pads them to. The shapes give one step of input features and many, tiles of
 * output features that are not full, and tiles in parts; there is little room for the sums of parts beside x in another
 * order. */
static void batches(struct test_backend *tb)
{
    static const int32_t tokens[] = {17, 31, 32, 33, 64, 65, 100, 200};
    static const int64_t shapes[][2] = {{16, 128}, {300, 2304}, {1001, 640}, {136, 1152}, {40, 8192}};
    static const int64_t groups[] = {128, 32, 0, 64, 384};
    if (!tb->b->discrete) return;
    workspace_for(tb, 200, 8192, 72);
    for (int i = 0; i < 8 * 5 * 2; i++) {
        const int n = i / 2 % 8, s = i / 16;
        const enum weight_format format = i % 2 ? WEIGHT_INT4 : formats[(n + s) % 2];
        const bool is_int4 = format == WEIGHT_INT4, is_block = format == WEIGHT_FP8 && (n + s) % 4 < 2;
        const enum dtype dtype = types[1 + (n + s) / 2 % 2];
        const struct quantized_case c = {.format = format,
                                         .num_tokens = tokens[n],
                                         .out_features = shapes[s][0],
                                         .in_features = shapes[s][1] + (is_int4 ? 0 : (n + s) % 3 * 16),
                                         .group_size = is_block ? 128 : groups[(n + s) % 5],
                                         .scale_rows = is_block ? 128 : 1,
                                         .scale_dtype = types[is_int4 ? (n + s) % 3 : 0],
                                         .dtype = dtype,
                                         .out_dtype = (n + 2 * s) % 3 ? dtype : DTYPE_FLOAT32,
                                         .bias_dtype = dtype,
                                         .bias = (n + s) % 4 == 1,
                                         .zeros = is_int4 && n % 2 == s % 2,
                                         .ordered = is_int4 && (n + s) % 3 == 1,
                                         .x_pad = n % 3 * 8,
                                         .out_pad = (n + s) % 3 * 2};
        check_linear(tb, &c);
    }
}

/* Scales of 128 x 128 elements, whole and cut. */
static void scales_of_blocks(struct test_backend *tb)
{
    workspace_for(tb, 130, 1000, 400);
    for (int i = 0; i < 24; i++) {
        const struct quantized_case c = {.format = WEIGHT_FP8,
                                         .num_tokens = i % 4 < 2    ? 1 + i % 4 * 2
                                                       : i % 4 == 2 ? 17
                                                                    : 130,
                                         .out_features = i / 4 % 2 ? 384 : 300,
                                         .in_features = i / 8 == 0   ? 512
                                                        : i / 8 == 1 ? 900
                                                                     : 576,
                                         .group_size = 128,
                                         .scale_rows = 128,
                                         .dtype = types[i / 4 % 3],
                                         .out_dtype = types[i / 4 % 3],
                                         .quantize_x = i / 2 % 2};
        check_linear(tb, &c);
    }
}

static void odd_sizes(struct test_backend *tb)
{
    workspace_for(tb, 40, 1024, 200);
    for (int i = 0; i < 90; i++) {
        struct quantized_case c = {.format = formats[i % 3],
                                   .num_tokens = (int32_t)random_between(tb->random, 1, 40),
                                   .out_features = random_between(tb->random, 1, 200),
                                   .in_features = random_between(tb->random, 1, i % 4 ? 100 : 1000),
                                   .scale_dtype = types[i % 3 == 2 ? random_between(tb->random, 0, 2) : 0],
                                   .dtype = types[random_between(tb->random, 0, 2)],
                                   .out_dtype = types[random_between(tb->random, 0, 2)],
                                   .bias_dtype = types[random_between(tb->random, 0, 2)],
                                   .bias = random_between(tb->random, 0, 1) == 1,
                                   .quantize_x = random_between(tb->random, 0, 1) == 1,
                                   .x_pad = random_between(tb->random, 0, 9),
                                   .out_pad = random_between(tb->random, 0, 9)};
        if (i % 2) c.group_size = 32 << random_between(tb->random, 0, 2);
        if (c.format == WEIGHT_INT4) {
            const int64_t unit = c.group_size ? c.group_size : 8;
            c.in_features = (c.in_features + unit - 1) / unit * unit;
            c.zeros = random_between(tb->random, 0, 1) == 1;
            c.ordered = random_between(tb->random, 0, 2) == 1;
        }
        check_linear(tb, &c);
    }
}

/* The matrices of Llama 1B and 8B, with few output features. */
static void real_sizes(struct test_backend *tb)
{
    static const int64_t in_features[] = {2048, 8192, 4096, 14336};
    static const int32_t tokens[] = {1, 4, 16, 70};
    workspace_for(tb, 70, 14336, 72);
    for (int i = 0; i < 4 * 4 * 3; i++) {
        const struct quantized_case c = {.format = formats[i % 3],
                                         .num_tokens = tokens[i / 3 % 4],
                                         .out_features = 72,
                                         .in_features = in_features[i / 12],
                                         .group_size = i % 3 == 2 ? 128 : 0,
                                         .scale_dtype = i % 3 == 2 ? DTYPE_FLOAT16 : DTYPE_FLOAT32,
                                         .dtype = tb->b->discrete ? DTYPE_BFLOAT16 : DTYPE_FLOAT32,
                                         .out_dtype = tb->b->discrete ? DTYPE_BFLOAT16 : DTYPE_FLOAT32,
                                         .zeros = i % 3 == 2,
                                         .quantize_x = i % 3 < 2};
        check_linear(tb, &c);
    }
}

static void thousands_of_tokens(struct test_backend *tb)
{
    static const int32_t counts[] = {1024, 1100, 4096, 6150};
    workspace_for(tb, 6150, 256, 256);
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 4; k++) {
            const struct quantized_case c = {.format = formats[i],
                                             .num_tokens = counts[k],
                                             .out_features = k < 2 ? 160 : 32,
                                             .in_features = 256,
                                             .group_size = i == 1 ? 0 : 128,
                                             .scale_rows = i == 0 ? 128 : 1,
                                             .dtype = DTYPE_BFLOAT16,
                                             .out_dtype = DTYPE_BFLOAT16,
                                             .zeros = i == 2,
                                             .ordered = i == 2 && k < 3, /* more of x than the workspace holds */
                                             .quantize_x = i < 2};
            check_linear(tb, &c);
        }
}

/* So many output features that a GPU multiplies more than 128 tokens at once. */
static void many_tokens_and_features(struct test_backend *tb)
{
    if (!tb->b->discrete) return;
    workspace_for(tb, 190, 128, 8464);
    for (int i = 0; i < 3; i++) {
        const struct quantized_case c = {.format = formats[i],
                                         .num_tokens = 131 + 29 * i,
                                         .out_features = 8464,
                                         .in_features = 128,
                                         .group_size = i == 1 ? 0 : 32,
                                         .dtype = types[1 + i % 2],
                                         .out_dtype = types[1 + i % 2],
                                         .bias_dtype = types[1 + i % 2],
                                         .bias = true,
                                         .zeros = formats[i] == WEIGHT_INT4};
        check_linear(tb, &c);
    }
}

/* Results are right even if the workspace was made for fewer tokens. */
static void small_workspace(struct test_backend *tb)
{
    if (tb->b->discrete) return;
    workspace_for(tb, 1, 512, 90);
    for (int i = 0; i < 3; i++) {
        const struct quantized_case c = {.format = formats[i],
                                         .num_tokens = 100,
                                         .out_features = 90,
                                         .in_features = 512,
                                         .group_size = 64,
                                         .ordered = true};
        check_linear(tb, &c);
    }
}

/* Matmuls of the same x in one loop. What x is rounded for, or which sums of it are needed, must be the same. */
static void parts_in_one_loop(struct test_backend *tb)
{
    enum { IN = 512 };
    static const int64_t out_features[] = {70, 3, 40};
    workspace_for(tb, 5, IN, 70);
    for (int i = 0; i < 6; i++) {
        const int k = i % 3;
        struct quantized_case c = {
            .format = formats[k], .in_features = IN, .group_size = i < 3 ? 0 : 64, .zeros = k == 2, .dtype = k};
        struct quantized_weight q[3], other, ordered;
        for (int j = 0; j < 3; j++) {
            c.out_features = out_features[j], c.bias = j == 1;
            q[j] = make_weight(tb, &c);
        }
        c.ordered = true;
        ordered = make_weight(tb, &c);
        c.ordered = false, c.group_size = 32;
        other = make_weight(tb, &c);
        for (int32_t tokens = 1; tokens <= 5; tokens += 2) {
            struct tensor x = tensor_random(tb->b, c.dtype, tokens * IN, 1, tb->random);
            check_linear_parts(tb, (const struct weight *[]){&q[0].weight, &q[1].weight, &q[2].weight}, 3, &x,
                               !tb->b->discrete);
            check_linear_parts(tb, (const struct weight *[]){&q[0].weight, &ordered.weight}, 2, &x, false);
            check_linear_parts(tb, (const struct weight *[]){&q[0].weight, &other.weight}, 2, &x, false);
            tensor_free(&x);
        }
        for (int j = 0; j < 3; j++) free_weight(&q[j]);
        free_weight(&ordered), free_weight(&other);
    }
}

/* The parts as linear computes them, but for the order of the sums; or nothing, if they are not taken. */
static void check_floats_beside(struct test_backend *tb, const struct weight *quantized, const struct weight *floats,
                                const struct tensor *x)
{
    const int64_t width = quantized->out_features + floats->out_features, size = dtype_size(x->dtype);
    const int64_t count = x->count / quantized->in_features * width;
    struct tensor expected = tensor_poison(tb->b, x->dtype, count), out = tensor_poison(tb->b, x->dtype, count);
    struct linear_args parts[] = {linear_of(&expected, x, quantized), linear_of(&expected, x, floats)};
    for (int i = 0; i < 2; i++) {
        parts[i].out_stride = width;
        if (i == 1) parts[i].out = (uint8_t *)expected.data + quantized->out_features * size;
        tb->b->linear(tb->b, &parts[i]);
        parts[i].out = (uint8_t *)out.data + (i == 1 ? quantized->out_features * size : 0);
    }
    if (tb->b->linear_parts(tb->b, parts, 2)) {
        tensor_download(&expected), tensor_download(&out);
        double *values = tensor_doubles(&expected);
        check_close(tb, "linear_parts of FP8 and floats", &out, values, count, x->dtype);
        free(values);
    } else {
        tensor_download(&out);
        for (int64_t i = 0; i < out.bytes; i++) assert_int_equal(out.host[i], 0xff);
    }
    tensor_free(&expected), tensor_free(&out);
}

/* FP8 and, behind it, a few rows of floats. */
static void floats_beside_fp8(struct test_backend *tb)
{
    static const int64_t sizes[][3] = {{2048, 1536, 64}, {256, 128, 1}, {4352, 520, 37}, {8192, 640, 128}};
    if (!tb->b->linear_parts) return;
    workspace_for(tb, 9, 8192, 1536);
    for (int i = 0; i < 16; i++) {
        const int64_t *size = sizes[i % 4], in = size[0];
        const struct quantized_case c = {.format = WEIGHT_FP8,
                                         .out_features = size[1],
                                         .in_features = in,
                                         .group_size = i % 3 ? 128 : 0,
                                         .scale_rows = i % 3 ? 128 : 0,
                                         .dtype = i % 2 ? DTYPE_BFLOAT16 : DTYPE_FLOAT16};
        struct quantized_weight q = make_weight(tb, &c);
        struct tensor rows = tensor_random(tb->b, c.dtype, size[2] * in, 1, tb->random);
        const struct weight floats = {
            .format = weight_format_of(c.dtype), .out_features = size[2], .in_features = in, .data = rows.data};
        for (int32_t tokens = 1; tokens <= 9; tokens++) {
            struct tensor x = tensor_random(tb->b, c.dtype, tokens * in, 1, tb->random);
            check_floats_beside(tb, &q.weight, &floats, &x);
            tensor_free(&x);
        }
        tensor_free(&rows);
        free_weight(&q);
    }
}

/* A NaN of FP8 makes its output feature NaN, and no other. */
static void keeps_nan(struct test_backend *tb)
{
    enum { OUT = 40, IN = 256, TOKENS = 33 };
    workspace_for(tb, TOKENS, IN, OUT);
    for (int32_t tokens = 1; tokens <= TOKENS; tokens += 8) {
        const struct quantized_case c = {.format = WEIGHT_FP8, .out_features = OUT, .in_features = IN};
        struct quantized_weight q = make_weight(tb, &c);
        const int64_t feature = random_between(tb->random, 0, OUT - 1), i = random_between(tb->random, 0, IN - 1);
        q.data.host[feature * IN + i] = random_between(tb->random, 0, 1) ? 0x7f : 0xff;
        tensor_upload(&q.data);
        if (tb->b->weight_prepare) tb->b->weight_prepare(tb->b, &q.weight); /* which leaves FP8 as it is */
        struct tensor x = tensor_random(tb->b, DTYPE_BFLOAT16, tokens * IN, 1, tb->random);
        struct tensor out = tensor_poison(tb->b, DTYPE_FLOAT32, tokens * OUT);
        const struct linear_args args = linear_of(&out, &x, &q.weight);
        tb->b->linear(tb->b, &args);
        tensor_download(&out);
        for (int64_t j = 0; j < out.count; j++)
            if (isnan(tensor_get(&out, j)) != (j % OUT == feature))
                fail_msg("%s: the NaN of output feature %lld is %s in element %lld", tb->name, (long long)feature,
                         j % OUT == feature ? "missing" : "also", (long long)j);
        tensor_free(&x), tensor_free(&out);
        free_weight(&q);
    }
}

/* A NaN of x makes its token NaN, and no other. */
static void keeps_nan_of_x(struct test_backend *tb)
{
    enum { OUT = 40, IN = 256, TOKENS = 33 };
    workspace_for(tb, TOKENS, IN, OUT);
    for (int i = 0; i < 6; i++) {
        const struct quantized_case c = {
            .format = formats[i % 3], .out_features = OUT, .in_features = IN, .group_size = 64};
        struct quantized_weight q = make_weight(tb, &c);
        const int32_t tokens = i < 3 ? 5 : TOKENS;
        const int64_t token = random_between(tb->random, 0, tokens - 1);
        struct tensor x = tensor_random(tb->b, DTYPE_FLOAT32, tokens * IN, 1, tb->random);
        struct tensor out = tensor_poison(tb->b, DTYPE_FLOAT32, tokens * OUT);
        tensor_set(&x, token * IN + random_between(tb->random, 0, IN - 1), i % 2 ? NAN : INFINITY);
        tensor_upload(&x);
        const struct linear_args args = linear_of(&out, &x, &q.weight);
        tb->b->linear(tb->b, &args);
        tensor_download(&out);
        for (int64_t j = 0; j < out.count; j++)
            if (isfinite(tensor_get(&out, j)) == (j / OUT == token))
                fail_msg("%s: %s: token %lld of x is not finite; element %lld is %g", tb->name, format_names[c.format],
                         (long long)token, (long long)j, tensor_get(&out, j));
        tensor_free(&x), tensor_free(&out);
        free_weight(&q);
    }
}

/* Element i becomes a NaN or minus infinity. */
static void make_not_finite(struct tensor *t, int64_t i, bool nan)
{
    const uint16_t half = nan ? 0x7e00 : 0xfc00, bfloat = nan ? 0x7fc0 : 0xff80;
    if (t->dtype == DTYPE_FLOAT32) {
        tensor_set(t, i, nan ? NAN : -INFINITY);
    } else {
        memcpy(t->host + i * 2, t->dtype == DTYPE_FLOAT16 ? &half : &bfloat, 2);
    }
    tensor_upload(t);
}

/* A NaN or an infinity of x makes its token not finite, whatever the weights are, and a NaN scale its output feature.
 */
static void int4_keeps_nan(struct test_backend *tb)
{
    enum { OUT = 40, IN = 384, TOKENS = 8 };
    workspace_for(tb, TOKENS, IN, OUT);
    for (int32_t i = 0; i < 2 * TOKENS; i++) {
        const int32_t tokens = 1 + i / 2;
        const struct quantized_case c = {.format = WEIGHT_INT4,
                                         .out_features = OUT,
                                         .in_features = IN,
                                         .group_size = 128,
                                         .scale_dtype = types[i % 3],
                                         .dtype = DTYPE_BFLOAT16};
        struct quantized_weight q = make_weight(tb, &c);
        const int64_t token = random_between(tb->random, 0, tokens - 1),
                      feature = random_between(tb->random, 0, OUT - 1);
        if (tb->b->discrete && i % 4 < 2) { /* all weights are 0, in any order */
            memset(q.data.host, 0x88, (size_t)q.data.bytes);
            tensor_upload(&q.data);
        }
        make_not_finite(&q.scales, feature * (IN / 128) + random_between(tb->random, 0, 2), true);
        struct tensor x = tensor_random(tb->b, DTYPE_BFLOAT16, tokens * IN, 1, tb->random);
        struct tensor out = tensor_poison(tb->b, DTYPE_FLOAT32, tokens * OUT);
        make_not_finite(&x, token * IN + random_between(tb->random, 0, IN - 1), i % 2);
        const struct linear_args args = linear_of(&out, &x, &q.weight);
        tb->b->linear(tb->b, &args);
        tensor_download(&out);
        for (int64_t j = 0; j < out.count; j++)
            if (isfinite(tensor_get(&out, j)) == (j / OUT == token || j % OUT == feature))
                fail_msg("%s: token %lld of %d and output feature %lld are not finite; element %lld is %g", tb->name,
                         (long long)token, tokens, (long long)feature, (long long)j, tensor_get(&out, j));
        tensor_free(&x), tensor_free(&out);
        free_weight(&q);
    }
}

/* Segments of no row, of all rows, and more segments than rows. */
static const int32_t segment_sizes[][40] = {{0, 1, 7, 130}, {0, 0, 138, 0}, {70}, {[3] = 1, [17] = 2, [39] = 1},
                                            {3, 1, 0, 5},   {600, 0, 20}};
static const int32_t segment_counts[] = {4, 4, 1, 40, 4, 3};

static void row_segments(struct test_backend *tb)
{
    static const int64_t groups[] = {0, 128, 32};
    workspace_for(tb, 640, 640, 40 * 256);
    for (int i = 0; i < 6 * 3 * 3; i++) {
        const int64_t group = groups[i / 3 % 3];
        const enum weight_format format = formats[i % 3];
        const bool blocks = format == WEIGHT_FP8 && group == 128;
        const struct quantized_case c = {.format = format,
                                         .out_features = blocks  ? 256
                                                         : i % 2 ? 196
                                                                 : 128,
                                         .in_features = 640,
                                         .group_size = group,
                                         .scale_rows = blocks ? 128 : 0,
                                         .scale_dtype = types[format == WEIGHT_INT4 ? i / 3 % 3 : 0],
                                         .dtype = types[i % 5 == 4 ? 0 : 1 + i % 2],
                                         .out_dtype = types[i % 5 == 4 || i % 7 == 6 ? 0 : 1 + i % 2],
                                         .bias_dtype = types[i % 5 == 4 ? 0 : 1 + i % 2],
                                         .bias = i % 4 == 1,
                                         .zeros = format == WEIGHT_INT4 && i % 4 > 1};
        check_segments(tb, &c, segment_sizes[i / 9], segment_counts[i / 9]);
    }
}

/* MXFP4, and every third time NVFP4: groups of 16 with float32 scales. */
static struct quantized_case mxfp4_case(int i, int64_t out_features, int64_t in_features)
{
    const bool is_nvfp4 = i % 3 == 2;
    const enum dtype dtype = types[i % 4 ? 2 : i / 4 % 2];
    return (struct quantized_case){.format = WEIGHT_MXFP4,
                                   .out_features = out_features,
                                   .in_features = in_features,
                                   .group_size = is_nvfp4 ? 16 : 32,
                                   .scale_dtype = is_nvfp4 ? DTYPE_FLOAT32 : DTYPE_E8M0,
                                   .dtype = dtype,
                                   .out_dtype = i % 5 ? dtype : DTYPE_FLOAT32,
                                   .bias_dtype = dtype,
                                   .bias = i / 2 % 2};
}

/* Numbers of tokens on both sides of every kernel's limit, and rows that do not fill a vector or a step. */
static void mxfp4(struct test_backend *tb)
{
    static const int32_t tokens[] = {1, 2, 3, 4, 5, 8, 9, 12, 16, 17, 32, 33, 64, 65, 100, 129, 300};
    static const int64_t shapes[][2] = {{128, 640}, {72, 2880}, {196, 96}, {33, 32}, {300, 1024}};
    workspace_for(tb, 300, 2880, 300);
    for (int i = 0; i < 17 * 5; i++) {
        struct quantized_case c = mxfp4_case(i, shapes[i % 5][0], shapes[i % 5][1]);
        c.num_tokens = tokens[i % 17];
        c.x_pad = i % 4 * 8, c.out_pad = i % 7;
        check_linear(tb, &c);
    }
    for (int i = 0; i < 6; i++) {
        struct quantized_case c = mxfp4_case(i, 64, 256);
        c.ordered = true;
        c.num_tokens = 1 + 20 * i;
        check_linear(tb, &c);
    }
}

static void mxfp4_row_segments(struct test_backend *tb)
{
    workspace_for(tb, 640, 640, 40 * 256);
    for (int i = 0; i < 6 * 3; i++) {
        const struct quantized_case c = mxfp4_case(i, i % 2 ? 196 : 128, i % 4 ? 640 : 96);
        check_segments(tb, &c, segment_sizes[i / 3], segment_counts[i / 3]);
    }
}

/* A scale of 255 makes its output feature NaN, and no other. */
static void mxfp4_keeps_nan(struct test_backend *tb)
{
    enum { OUT = 40, IN = 384, TOKENS = 41 };
    workspace_for(tb, TOKENS, IN, OUT);
    for (int32_t i = 0; i < 6; i++) {
        const int32_t tokens = 1 + 8 * i;
        struct quantized_case c = mxfp4_case(0, OUT, IN);
        c.dtype = types[i / 2], c.bias = false;
        struct quantized_weight q = make_weight(tb, &c);
        const int64_t feature = random_between(tb->random, 0, OUT - 1);
        q.scales.host[feature * (IN / 32) + random_between(tb->random, 0, IN / 32 - 1)] = 255;
        tensor_upload(&q.scales);
        struct tensor x = tensor_random(tb->b, c.dtype, tokens * IN, 1, tb->random);
        struct tensor out = tensor_poison(tb->b, DTYPE_FLOAT32, tokens * OUT);
        const struct linear_args args = linear_of(&out, &x, &q.weight);
        tb->b->linear(tb->b, &args);
        tensor_download(&out);
        for (int64_t j = 0; j < out.count; j++)
            if (isnan(tensor_get(&out, j)) != (j % OUT == feature))
                fail_msg("%s: the NaN of output feature %lld is %s in element %lld", tb->name, (long long)feature,
                         j % OUT == feature ? "missing" : "also", (long long)j);
        tensor_free(&x), tensor_free(&out);
        free_weight(&q);
    }
}

static void on_every_backend(void **state, void (*check)(struct test_backend *tb))
{
    struct kernel_test *test = *state;
    for (int i = 0; i < test->num_backends; i++) check(&test->backends[i]);
}

#define EVERY_BACKEND_TEST(check)                                                                                      \
    static void test_##check(void **state)                                                                             \
    {                                                                                                                  \
        on_every_backend(state, check);                                                                                \
    }

EVERY_BACKEND_TEST(few_and_many_tokens)
EVERY_BACKEND_TEST(every_group_size)
EVERY_BACKEND_TEST(int4_with_few_tokens)
EVERY_BACKEND_TEST(batches)
EVERY_BACKEND_TEST(row_segments)
EVERY_BACKEND_TEST(scales_of_blocks)
EVERY_BACKEND_TEST(odd_sizes)
EVERY_BACKEND_TEST(parts_in_one_loop)
EVERY_BACKEND_TEST(floats_beside_fp8)
EVERY_BACKEND_TEST(real_sizes)
EVERY_BACKEND_TEST(thousands_of_tokens)
EVERY_BACKEND_TEST(many_tokens_and_features)
EVERY_BACKEND_TEST(small_workspace)
EVERY_BACKEND_TEST(keeps_nan)
EVERY_BACKEND_TEST(keeps_nan_of_x)
EVERY_BACKEND_TEST(int4_keeps_nan)
EVERY_BACKEND_TEST(mxfp4)
EVERY_BACKEND_TEST(mxfp4_row_segments)
EVERY_BACKEND_TEST(mxfp4_keeps_nan)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_few_and_many_tokens),
        cmocka_unit_test(test_every_group_size),
        cmocka_unit_test(test_scales_of_blocks),
        cmocka_unit_test(test_odd_sizes),
        cmocka_unit_test(test_parts_in_one_loop),
        cmocka_unit_test(test_floats_beside_fp8),
        cmocka_unit_test(test_real_sizes),
        cmocka_unit_test(test_thousands_of_tokens),
        cmocka_unit_test(test_small_workspace),
        cmocka_unit_test(test_many_tokens_and_features),
        cmocka_unit_test(test_keeps_nan),
        cmocka_unit_test(test_keeps_nan_of_x),
        cmocka_unit_test(test_int4_with_few_tokens),
        cmocka_unit_test(test_int4_keeps_nan),
        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_row_segments),
        cmocka_unit_test(test_mxfp4),
        cmocka_unit_test(test_mxfp4_row_segments),
        cmocka_unit_test(test_mxfp4_keeps_nan),
    };
    cmocka_set_test_filter(getenv("QUIRE_TEST_FILTER"));
    return cmocka_run_group_tests(tests, kernel_test_setup, kernel_test_teardown);
}
