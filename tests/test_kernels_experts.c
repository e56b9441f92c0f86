/* The operations of a mixture of experts, against float64, on each backend of this machine that has them. The matmuls
 * are given plans that the test makes, so that they do not depend on the router. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/operations.h"
#include "tests/support/reference_experts.h"

static const enum dtype types[] = {DTYPE_FLOAT32, DTYPE_FLOAT16, DTYPE_BFLOAT16};

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

/* ---- plans ---- */

/* The device's plan, full of poison or of what the host has. */
struct plan_tensors {
    struct tensor starts, tokens, rows, weights;
};

static struct plan_tensors plan_poison(struct backend *b, int32_t num_experts, int64_t assignments)
{
    return (struct plan_tensors){
        tensor_poison(b, DTYPE_FLOAT32, num_experts + 1), tensor_poison(b, DTYPE_FLOAT32, assignments),
        tensor_poison(b, DTYPE_FLOAT32, assignments), tensor_poison(b, DTYPE_FLOAT32, assignments)};
}

static void plan_free(struct plan_tensors *p)
{
    tensor_free(&p->starts), tensor_free(&p->tokens), tensor_free(&p->rows), tensor_free(&p->weights);
}

static struct expert_plan plan_of(const struct plan_tensors *p)
{
    return (struct expert_plan){p->starts.data, p->tokens.data, p->rows.data, p->weights.data};
}

/* ---- the router ---- */

struct route_case {
    struct router_params router;
    int32_t num_tokens;
    bool choice_bias, expert_scales, base_gate;
};

/* Elements of a token in its logits. */
static int64_t row_of(const struct route_case *c)
{
    return c->router.num_experts + c->base_gate;
}

static double gate_logit(int64_t token)
{
    return (double)(token % 23) - 11.5;
}

/* Multiples of 1/64, so that there are ties. Those that choose themselves are so large that their sigmoids are 1. */
static void draw_logits(struct test_backend *tb, const struct route_case *c, double *logits)
{
    const bool ties = c->router.kind != ROUTER_SPARSEMIXER;
    for (int32_t e = 0; e < c->router.num_experts; e++)
        logits[e] = ties ? (double)random_between(tb->random, -256, 256) / 64 + (c->router.by_logits ? 30 : 0)
                         : (double)(float)(8 * random_uniform(tb->random) - 4);
}

/* Of all tokens. What the router makes of them is in experts and weights: [num_tokens, top_k]. */
static struct tensor random_logits(struct test_backend *tb, const struct route_case *c, const double *bias,
                                   const double *scales, int32_t *experts, double *weights)
{
    const int32_t n = c->router.num_experts, k = c->router.top_k;
    struct tensor logits = tensor_poison(tb->b, DTYPE_FLOAT32, c->num_tokens * row_of(c));
    double row[ROUTER_MAX_EXPERTS];
    for (int64_t t = 0; t < c->num_tokens; t++) {
        do draw_logits(tb, c, row);
        while (reference_route(experts + t * k, weights + t * k, row, c->choice_bias ? bias : NULL,
                               c->expert_scales ? scales : NULL, &c->router));
        for (int32_t e = 0; e < n; e++) tensor_set(&logits, t * row_of(c) + e, row[e]);
        if (c->base_gate) tensor_set(&logits, t * row_of(c) + n, gate_logit(t));
    }
    tensor_upload(&logits);
    return logits;
}

/* Runs the operation with poison in the plan. */
static struct plan_tensors route(struct test_backend *tb, const struct route_case *c, const struct tensor *logits,
                                 const struct tensor *bias, const struct tensor *scales)
{
    struct tensor base_gate = tensor_poison(tb->b, DTYPE_FLOAT32, c->num_tokens);
    const struct router_params *r = &c->router;
    struct plan_tensors plan = plan_poison(tb->b, router_num_own(r), (int64_t)c->num_tokens * r->top_k);
    const struct route_experts_args args = {.plan = plan_of(&plan),
                                            .base_gate = c->base_gate ? base_gate.data : NULL,
                                            .logits = logits->data,
                                            .choice_bias = c->choice_bias ? bias->data : NULL,
                                            .expert_scales = c->expert_scales ? scales->data : NULL,
                                            .router = *r,
                                            .num_tokens = c->num_tokens};
    tb->b->route_experts(tb->b, &args);
    tensor_download(&plan.starts), tensor_download(&plan.tokens);
    tensor_download(&plan.rows), tensor_download(&plan.weights), tensor_download(&base_gate);
    check_workspace(tb);
    for (int64_t t = 0; c->base_gate && t < c->num_tokens; t++)
        if (!(fabs(tensor_get(&base_gate, t) - 1 / (1 + exp(-gate_logit(t)))) < 1e-6))
            fail_msg("%s: the gate of token %lld", tb->name, (long long)t);
    tensor_free(&base_gate);
    return plan;
}

static void check_integers(const struct test_backend *tb, const char *what, const struct tensor *out,
                           const int32_t *expected)
{
    const int32_t *found = (const int32_t *)out->host;
    for (int64_t i = 0; i < out->count; i++)
        if (found[i] != expected[i])
            fail_msg("%s: %s: element %lld is %d instead of %d", tb->name, what, (long long)i, found[i], expected[i]);
}

static void check_plan(const struct test_backend *tb, const char *what, const struct plan_tensors *plan,
                       const int32_t *experts, const double *weights, const struct route_case *c)
{
    char text[300];
    const int64_t count = plan->rows.count;
    int32_t *starts = malloc(sizeof *starts * (size_t)plan->starts.count);
    int32_t *tokens = malloc(sizeof *tokens * (size_t)count), *rows = malloc(sizeof *rows * (size_t)count);
    reference_plan(starts, tokens, rows, experts, c->num_tokens, &c->router);
    snprintf(text, sizeof text, "starts of %s", what);
    check_integers(tb, text, &plan->starts, starts);
    snprintf(text, sizeof text, "tokens of %s", what);
    check_integers(tb, text, &plan->tokens, tokens);
    snprintf(text, sizeof text, "rows of %s", what);
    check_integers(tb, text, &plan->rows, rows);
    snprintf(text, sizeof text, "weights of %s", what);
    check_close(tb, text, &plan->weights, weights, count, DTYPE_FLOAT32);
    free(starts), free(tokens), free(rows);
}

static void check_route(struct test_backend *tb, const struct route_case *c)
{
    char what[200];
    const int32_t n = c->router.num_experts, k = c->router.top_k;
    struct tensor bias = tensor_random(tb->b, DTYPE_FLOAT32, n, 0.3, tb->random);
    struct tensor scales = tensor_random(tb->b, DTYPE_FLOAT32, n, 2, tb->random);
    double *biases = tensor_doubles(&bias), *factors = tensor_doubles(&scales);
    int32_t *experts = malloc(sizeof *experts * (size_t)(c->num_tokens * k));
    double *weights = malloc(sizeof *weights * (size_t)(c->num_tokens * k));
    struct tensor logits = random_logits(tb, c, biases, factors, experts, weights);
    struct plan_tensors plan = route(tb, c, &logits, &bias, &scales);
    snprintf(what, sizeof what, "%d tokens, %d of %d experts, %d from %d on, router %d, groups %d of %d", c->num_tokens,
             k, n, router_num_own(&c->router), c->router.first_own, (int)c->router.kind, c->router.top_groups,
             c->router.num_groups);
    check_plan(tb, what, &plan, experts, weights, c);
    free(biases), free(factors), free(experts), free(weights);
    plan_free(&plan);
    tensor_free(&logits), tensor_free(&bias), tensor_free(&scales);
}

static void routes(struct test_backend *tb)
{
    workspace_for(tb, 32, 128, 128);
    static const struct router_params routers[] = {
        {.kind = ROUTER_SOFTMAX, .num_experts = 128, .top_k = 8, .normalize = true},
        {.kind = ROUTER_SOFTMAX, .num_experts = 60, .top_k = 4},
        {.kind = ROUTER_SOFTMAX, .num_experts = 8, .top_k = 2, .normalize = true, .soft_cap = 3},
        {.kind = ROUTER_SOFTMAX, .num_experts = 32, .top_k = 32},
        {.kind = ROUTER_SOFTMAX, .num_experts = 64, .top_k = 6, .num_groups = 8, .top_groups = 3},
        {.kind = ROUTER_SOFTMAX, .num_experts = 1, .top_k = 1},
        {.kind = ROUTER_SIGMOID, .num_experts = 16, .top_k = 1},
        {.kind = ROUTER_SIGMOID, .num_experts = 16, .top_k = 3, .by_logits = true},
        {.kind = ROUTER_SOFTMAX, .num_experts = 40, .top_k = 4, .by_logits = true, .normalize = true},
        {.kind = ROUTER_SIGMOID,
         .num_experts = 256,
         .top_k = 8,
         .num_groups = 8,
         .top_groups = 4,
         .group_sums = true,
         .normalize = true},
        {.kind = ROUTER_SIGMOID, .num_experts = 512, .top_k = 22, .normalize = true},
        {.kind = ROUTER_SIGMOID, .num_experts = 1024, .top_k = 10, .num_groups = 32, .top_groups = 1},
        {.kind = ROUTER_SIGMOID, .num_experts = 6, .top_k = 3, .num_groups = 6, .top_groups = 2, .group_sums = true},
        {.kind = ROUTER_SPARSEMIXER, .num_experts = 16, .top_k = 2, .jitter = 0.0123f},
    };
    static const int32_t counts[] = {1, 2, 7, 16, 17, 32, 33, 64, 200, 1000, 4097};
    for (size_t r = 0; r < sizeof routers / sizeof *routers; r++)
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            struct route_case c = {.router = routers[r], .num_tokens = counts[i]};
            c.router.scaling = i % 2 ? 2.5f : 1;
            c.choice_bias = c.router.kind != ROUTER_SPARSEMIXER && (i + r) % 3 == 0;
            c.expert_scales = (i + r) % 4 == 1;
            c.base_gate = (i + r) % 2 == 0;
            if (kernel_test_takes(tb)) check_route(tb, &c);
            if (c.router.num_experts == 1) continue;
            c.router.num_own = 1 + (int32_t)(i * 7 + r) % (c.router.num_experts - 1); /* of a rank: any range */
            c.router.first_own = (int32_t)(i + r * 5) % (c.router.num_experts - c.router.num_own + 1);
            if (kernel_test_takes(tb)) check_route(tb, &c);
        }
    struct route_case many = {.router = routers[0], .num_tokens = 8192};
    many.router.scaling = 1;
    check_route(tb, &many);
}

/* Whatever the logits are, the plan is one: each assignment has a row of its own. */
static void check_is_plan(const struct test_backend *tb, const struct plan_tensors *plan, const struct route_case *c)
{
    const int32_t *starts = (const int32_t *)plan->starts.host, *tokens = (const int32_t *)plan->tokens.host;
    const int32_t *rows = (const int32_t *)plan->rows.host, k = c->router.top_k;
    assert_int_equal(starts[0], 0);
    assert_int_equal(starts[c->router.num_experts], plan->rows.count);
    for (int32_t e = 0; e < c->router.num_experts; e++) {
        assert_true(starts[e] <= starts[e + 1]);
        for (int32_t row = starts[e] + 1; row < starts[e + 1]; row++) assert_true(tokens[row - 1] < tokens[row]);
    }
    for (int64_t i = 0; i < plan->rows.count; i++) {
        assert_in_range(rows[i], 0, plan->rows.count - 1);
        if (tokens[rows[i]] != i / k) fail_msg("%s: row %d is not of token %lld", tb->name, rows[i], (long long)i / k);
        if (i % k > 0) assert_true(rows[i - 1] < rows[i]);
    }
}

static void damaged_logits(struct test_backend *tb)
{
    static const double values[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3 * 3 * 3; i++) {
        struct route_case c = {.router = {.num_experts = 64, .top_k = 6, .normalize = true, .scaling = 1},
                               .num_tokens = i / 9 == 0   ? 3
                                             : i / 9 == 1 ? 40
                                                          : 900,
                               .choice_bias = i % 2};
        c.router.kind = i % 3 == 0 ? ROUTER_SOFTMAX : i % 3 == 1 ? ROUTER_SIGMOID : ROUTER_SPARSEMIXER;
        if (i % 3 == 2) c.router.top_k = 2;
        if (i % 2) c.router.num_groups = 4, c.router.top_groups = 1;
        struct tensor logits = tensor_random(tb->b, DTYPE_FLOAT32, 64 * (int64_t)c.num_tokens, 4, tb->random);
        struct tensor bias = tensor_random(tb->b, DTYPE_FLOAT32, 64, 0.3, tb->random);
        const double value = values[i / 3 % 3];
        for (int e = 0; e < 64; e++) tensor_set(&logits, 64 + e, value); /* all of token 1, one of token 2 */
        tensor_set(&logits, 2 * 64 + 5, value);
        tensor_upload(&logits);
        struct plan_tensors plan = route(tb, &c, &logits, &bias, NULL);
        check_is_plan(tb, &plan, &c);
        for (int32_t j = 0; j < c.num_tokens * c.router.top_k; j++) {
            const bool is_damaged = isnan(value) && j / c.router.top_k >= 1 && j / c.router.top_k <= 2;
            const bool may_be = j / c.router.top_k >= 1 && j / c.router.top_k <= 2;
            if (is_damaged) assert_true(isnan(tensor_get(&plan.weights, j)));
            if (!may_be) assert_true(isfinite(tensor_get(&plan.weights, j)));
        }
        plan_free(&plan);
        tensor_free(&logits), tensor_free(&bias);
    }
}

/* ---- the matmuls ---- */

enum routing { ROUTING_RANDOM, ROUTING_ONE_EXPERT, ROUTING_SKEWED };

struct experts_case {
    int32_t num_tokens, num_experts, top_k;
    int32_t first_own, all_experts; /* num_experts of so many are here; all_experts 0: all */
    int64_t size, hidden;
    enum weight_format format;
    int64_t group_size; /* 0: the whole row */
    int64_t scale_rows; /* 0: 1 */
    enum dtype dtype;
    bool zeros, ordered, bias, stacked, two_parts, weights_first, base, base_gate, quantize_x;
    int x_exponent; /* of two, which x is multiplied by */
    struct gate_params gate;
    enum routing routing;
};

/* A matrix of each expert, on the device and on the host. */
struct matrices {
    int count; /* of weights */
    struct weight *weights, *host;
    struct tensor *tensors; /* [5 * number of allocations] */
    int num_tensors;
};

static const void *keep(struct matrices *m, struct tensor t, const void **host)
{
    m->tensors[m->num_tensors++] = t;
    *host = t.host;
    return t.data;
}

static struct tensor random_order(struct test_backend *tb, int64_t n)
{
    int32_t *order = malloc(sizeof *order * (size_t)n);
    for (int64_t i = 0; i < n; i++) {
        const int64_t j = random_between(tb->random, 0, i);
        order[i] = order[j], order[j] = (int32_t)i;
    }
    struct tensor t = tensor_bytes(tb->b, order, n * (int64_t)sizeof *order);
    free(order);
    return t;
}

static struct tensor random_scales(struct test_backend *tb, const struct weight *w)
{
    static const double largest_of[] = {[WEIGHT_FP8] = 448, [WEIGHT_INT8] = 127, [WEIGHT_INT4] = 8, [WEIGHT_MXFP4] = 6};
    const double largest = largest_of[w->format];
    struct tensor scales = tensor_poison(tb->b, w->scale_dtype, weight_scale_count(w));
    for (int64_t i = 0; i < scales.count; i++)
        tensor_set(&scales, i, (0.5 + random_uniform(tb->random)) / largest * (i % 17 ? 0.2 : 0.01));
    tensor_upload(&scales);
    return scales;
}

static struct tensor random_data(struct test_backend *tb, const struct weight *w)
{
    if (!weight_is_quantized(w))
        return tensor_random(tb->b, weight_dtype(w), w->out_features * w->in_features, 0.2, tb->random);
    struct tensor data = tensor_random_bytes(tb->b, w->out_features * weight_row_bytes(w), 255, tb->random);
    for (int64_t i = 0; i < data.count && w->format == WEIGHT_FP8; i++)
        if ((data.host[i] & 0x7f) == 0x7f) data.host[i] ^= 0x10;
    tensor_upload(&data);
    return data;
}

/* One allocation: a matrix, or those of all experts. */
static void make_weight(struct matrices *m, struct test_backend *tb, const struct experts_case *c, int index,
                        int64_t rows, int64_t in_features)
{
    struct weight w = {.format = c->format,
                       .out_features = rows,
                       .in_features = in_features,
                       .scale_dtype = c->format == WEIGHT_INT4    ? DTYPE_FLOAT16
                                      : c->format == WEIGHT_MXFP4 ? DTYPE_E8M0
                                                                  : DTYPE_FLOAT32,
                       .scale_rows = c->scale_rows ? c->scale_rows : 1,
                       .group_size = c->group_size ? c->group_size : in_features,
                       .quantize_x = c->quantize_x};
    struct weight host = w;
    const void *zeros = NULL, *order = NULL;
    w.data = keep(m, random_data(tb, &w), &host.data);
    if (weight_is_quantized(&w)) w.scales = keep(m, random_scales(tb, &w), &host.scales);
    if (c->zeros) {
        w.zeros = keep(m, tensor_random_bytes(tb->b, rows * weight_groups(&w), 15, tb->random), &zeros);
        host.zeros = zeros;
    }
    if (c->ordered) {
        w.input_order = keep(m, random_order(tb, in_features), &order);
        host.input_order = order;
    }
    if (c->bias) {
        w.bias = keep(m, tensor_random(tb->b, c->dtype, rows, 1, tb->random), &host.bias);
        w.bias_dtype = host.bias_dtype = c->dtype;
    }
    if (tb->b->weight_prepare) tb->b->weight_prepare(tb->b, &w);
    m->weights[index] = w, m->host[index] = host;
}

/* Matrices [rows, in_features], or two parts of half as many rows each. */
static struct matrices make_matrices(struct test_backend *tb, const struct experts_case *c, int64_t rows,
                                     int64_t in_features, int parts)
{
    struct matrices m = {.count = c->stacked ? 1 : c->num_experts * parts};
    m.weights = malloc(sizeof *m.weights * (size_t)m.count);
    m.host = malloc(sizeof *m.host * (size_t)m.count);
    m.tensors = malloc(5 * sizeof *m.tensors * (size_t)m.count);
    for (int i = 0; i < m.count; i++)
        make_weight(&m, tb, c, i, c->stacked ? c->num_experts * rows : rows / parts, in_features);
    if (c->stacked) m.weights[0].out_features = m.host[0].out_features = rows;
    return m;
}

static void free_matrices(struct matrices *m)
{
    for (int i = 0; i < m->num_tensors; i++) tensor_free(&m->tensors[i]);
    free(m->weights), free(m->host), free(m->tensors);
}

/* The elements and the biases of an expert: w [rows, in_features] by input feature. */
static void expert_elements(double *w, double *bias, const struct matrices *m, const struct experts_case *c,
                            int32_t expert, int parts)
{
    for (int p = 0; p < parts; p++) {
        struct weight host = m->host[c->stacked ? 0 : expert * parts + p];
        if (c->stacked) host = weight_of_segment(&host, expert);
        for (int64_t o = 0; o < host.out_features; o++) {
            *bias++ = host.bias ? dtype_load(host.bias, host.bias_dtype, o) : 0;
            for (int64_t i = 0; i < host.in_features; i++)
                w[host.input_order ? host.input_order[i] : i] = weight_element(&host, o, i);
            w += host.in_features;
        }
    }
}

/* out[row] = x[row] * W^T + bias for all rows of the plan. */
static void reference_experts(double *out, const double *x, const struct matrices *m, const struct experts_case *c,
                              const int32_t *starts, int64_t rows, int64_t in_features, int parts)
{
    double *w = malloc(sizeof *w * (size_t)(rows * in_features)), *bias = malloc(sizeof *bias * (size_t)rows);
    for (int32_t e = 0; e < c->num_experts; e++) {
        if (starts[e] == starts[e + 1]) continue;
        expert_elements(w, bias, m, c, e, parts);
        reference_linear(out + starts[e] * rows, x + starts[e] * in_features, w, bias, starts[e + 1] - starts[e], rows,
                         in_features);
    }
    free(w), free(bias);
}

/* A plan on the device and on the host. */
struct test_plan {
    struct plan_tensors device;
    const int32_t *starts, *tokens, *rows;
};

static struct test_plan make_plan(struct test_backend *tb, const struct experts_case *c)
{
    const int64_t count = (int64_t)c->num_tokens * c->top_k;
    const int32_t all = c->all_experts ? c->all_experts : c->num_experts;
    const struct router_params router = {
        .num_experts = all, .top_k = c->top_k, .first_own = c->first_own, .num_own = c->num_experts};
    struct test_plan p = {.device = plan_poison(tb->b, c->num_experts, count)};
    int32_t *experts = malloc(sizeof *experts * (size_t)count);
    for (int64_t t = 0; t < c->num_tokens; t++) {
        const int32_t range = all - c->top_k; /* they are ascending and different */
        int32_t first = (int32_t)random_between(tb->random, 0, range);
        if (c->routing == ROUTING_ONE_EXPERT) first = range / 2;
        if (c->routing == ROUTING_SKEWED && t % 5) first = 0;
        for (int32_t k = 0; k < c->top_k; k++) experts[t * c->top_k + k] = first + k;
    }
    p.starts = (const int32_t *)p.device.starts.host;
    p.tokens = (const int32_t *)p.device.tokens.host;
    p.rows = (const int32_t *)p.device.rows.host;
    reference_plan((int32_t *)p.device.starts.host, (int32_t *)p.device.tokens.host, (int32_t *)p.device.rows.host,
                   experts, c->num_tokens, &router);
    for (int64_t i = 0; i < count; i++) tensor_set(&p.device.weights, i, 0.2 + random_uniform(tb->random));
    tensor_upload(&p.device.starts), tensor_upload(&p.device.tokens);
    tensor_upload(&p.device.rows), tensor_upload(&p.device.weights);
    free(experts);
    return p;
}

static void describe(char *text, size_t size, const char *operation, const struct experts_case *c)
{
    snprintf(text, size,
             "%s: %d tokens, %d of %d experts of %d, size %lld, hidden %lld, format %d, group %lld, %s%s%s%s%s%s%s, "
             "routing %d",
             operation, c->num_tokens, c->top_k, c->num_experts, c->all_experts, (long long)c->size,
             (long long)c->hidden, (int)c->format, (long long)c->group_size, dtype_name(c->dtype),
             c->zeros ? ", zeros" : "", c->ordered ? ", ordered" : "", c->bias ? ", bias" : "",
             c->stacked ? ", stacked" : "", c->two_parts ? ", two parts" : "",
             c->weights_first ? ", weights first" : "", (int)c->routing);
}

/* INT8 and INT4 weights may be multiplied by x in 8 bits. */
static double tolerance_of(const struct experts_case *c)
{
    if (c->format >= WEIGHT_FP8) return c->quantize_x ? 1e-2 : 2e-2;
    return c->dtype == DTYPE_FLOAT32 ? 1e-5 : 1e-2;
}

static double rounded(enum dtype dtype, double x)
{
    return reference_decode(dtype, reference_encode(dtype, x));
}

/* Rows of n elements, and a float for each. */
static struct tensor poisoned_scratch(struct test_backend *tb, enum dtype dtype, int64_t rows, int64_t n)
{
    return tensor_poison(tb->b, dtype, rows * (n + (int64_t)sizeof(float) / dtype_size(dtype)));
}

/* Rows of x. Those that may be quantized are exact in 8 bits: integers up to 16, of a largest element of 448 in each
 * group, times a power of two. */
static struct tensor random_rows(struct test_backend *tb, const struct experts_case *c, int64_t rows, int64_t n)
{
    struct tensor x = tensor_random(tb->b, c->dtype, rows * n, ldexp(1, c->x_exponent), tb->random);
    if (!c->quantize_x) return x;
    for (int64_t i = 0; i < rows * n; i++) tensor_set(&x, i, (double)random_between(tb->random, -16, 16) / 64);
    const int64_t group = c->group_size ? c->group_size : n;
    for (int64_t i = 0; i < rows * n; i += group)
        tensor_set(&x, i + random_between(tb->random, 0, group - 1), i / group % 2 ? 7 : -7);
    tensor_upload(&x);
    return x;
}

static void check_gate_up(struct test_backend *tb, const struct experts_case *c, struct test_plan *p)
{
    char what[300];
    const int64_t rows = (int64_t)c->num_tokens * c->top_k, n = c->hidden, size = c->size;
    const int64_t features = gate_operands(&c->gate) * size;
    const int parts = c->two_parts ? 2 : 1;
    struct matrices m = make_matrices(tb, c, features, n, parts);
    struct tensor x = random_rows(tb, c, c->num_tokens, n);
    struct tensor out = tensor_poison(tb->b, c->dtype, rows * size);
    struct tensor scratch = poisoned_scratch(tb, c->dtype, rows, n > features ? n : features);
    const struct experts_gate_up_args args = {.out = out.data,
                                              .x = x.data,
                                              .gate_up = {m.weights, c->stacked, parts},
                                              .gate = c->gate,
                                              .plan = plan_of(&p->device),
                                              .weights_first = c->weights_first,
                                              .scratch = scratch.data,
                                              .num_tokens = c->num_tokens,
                                              .num_experts = c->num_experts,
                                              .top_k = c->top_k,
                                              .all_experts = c->all_experts,
                                              .size = (int32_t)size,
                                              .dtype = c->dtype};
    tb->b->experts_gate_up(tb->b, &args);
    tensor_download(&out);
    check_workspace(tb);
    double *xs = malloc(sizeof *xs * (size_t)(rows * n)), *sums = malloc(sizeof *sums * (size_t)(rows * features));
    double *expected = malloc(sizeof *expected * (size_t)(rows * size));
    for (int64_t j = 0; j < rows; j++)
        for (int64_t i = 0; i < n && p->rows[j] >= 0; i++) {
            const double weight = tensor_get(&p->device.weights, j), element = tensor_get(&x, j / c->top_k * n + i);
            xs[p->rows[j] * n + i] = c->weights_first ? rounded(c->dtype, weight * element) : element;
        }
    reference_experts(sums, xs, &m, c, p->starts, features, n, parts);
    const int64_t count = p->starts[c->num_experts] * size;
    for (int64_t i = 0; i < count; i++) {
        const double *row = sums + i / size * features, *up = row + features - size;
        expected[i] = reference_gate(row[i % size], up[i % size], &c->gate);
    }
    describe(what, sizeof what, "gate_up", c);
    check_within(tb, what, &out, expected, count, 2 * tolerance_of(c));
    free(xs), free(sums), free(expected);
    free_matrices(&m);
    tensor_free(&x), tensor_free(&out), tensor_free(&scratch);
}

static void check_down(struct test_backend *tb, const struct experts_case *c, struct test_plan *p)
{
    char what[300];
    const int64_t rows = (int64_t)c->num_tokens * c->top_k, n = c->hidden, count = c->num_tokens * n;
    struct matrices m = make_matrices(tb, c, n, c->size, 1);
    struct tensor x = random_rows(tb, c, rows, c->size);
    for (int64_t i = p->starts[c->num_experts] * c->size; i < rows * c->size; i++) tensor_set(&x, i, NAN);
    tensor_upload(&x);
    struct tensor base = tensor_random(tb->b, c->dtype, count, 1, tb->random);
    struct tensor base_gate = tensor_random(tb->b, DTYPE_FLOAT32, c->num_tokens, 2, tb->random);
    struct tensor out = tensor_poison(tb->b, c->dtype, count), scratch = poisoned_scratch(tb, c->dtype, rows, n);
    const bool in_place = c->base && c->num_tokens % 2;
    const struct experts_down_args args = {.out = in_place ? base.data : out.data,
                                           .x = x.data,
                                           .down = {m.weights, c->stacked, 1},
                                           .plan = plan_of(&p->device),
                                           .weights_first = c->weights_first,
                                           .base = c->base ? base.data : NULL,
                                           .base_gate = c->base_gate ? base_gate.data : NULL,
                                           .scratch = scratch.data,
                                           .num_tokens = c->num_tokens,
                                           .num_experts = c->num_experts,
                                           .top_k = c->top_k,
                                           .all_experts = c->all_experts,
                                           .size = (int32_t)c->size,
                                           .dtype = c->dtype};
    double *bases = tensor_doubles(&base), *xs = tensor_doubles(&x);
    double *results = malloc(sizeof *results * (size_t)(rows * n));
    double *expected = calloc((size_t)count, sizeof *expected);
    tb->b->experts_down(tb->b, &args);
    tensor_download(&scratch);
    tensor_download(in_place ? &base : &out);
    check_workspace(tb);
    reference_experts(results, xs, &m, c, p->starts, n, c->size, 1);
    for (int64_t t = 0; t < c->num_tokens; t++) {
        const double factor = c->base_gate ? tensor_get(&base_gate, t) : 1;
        for (int64_t i = 0; i < n && c->base; i++) expected[t * n + i] = factor * bases[t * n + i];
        for (int64_t j = t * c->top_k; j < (t + 1) * c->top_k; j++)
            for (int64_t i = 0; i < n && p->rows[j] >= 0; i++)
                expected[t * n + i] +=
                    (c->weights_first ? 1 : tensor_get(&p->device.weights, j)) * results[p->rows[j] * n + i];
    }
    describe(what, sizeof what, c->base_gate ? "down, gated base" : c->base ? "down, base" : "down", c);
    check_within(tb, what, in_place ? &base : &out, expected, count, tolerance_of(c));
    free(bases), free(xs), free(results), free(expected);
    free_matrices(&m);
    tensor_free(&x), tensor_free(&base), tensor_free(&base_gate), tensor_free(&out), tensor_free(&scratch);
}

static void check_experts(struct test_backend *tb, const struct experts_case *c)
{
    if (!kernel_test_takes(tb)) return;
    struct experts_case own = *c;
    if (tb->b->discrete) own.stacked = true, own.two_parts = own.ordered = false;
    struct test_plan p = make_plan(tb, &own);
    check_gate_up(tb, &own, &p);
    own.two_parts = false;
    check_down(tb, &own, &p);
    plan_free(&p.device);
}

static const int32_t token_counts[] = {1, 2, 3, 5, 8, 12, 16, 17, 31, 40, 64, 100, 257};
enum { TOKEN_COUNTS = sizeof token_counts / sizeof *token_counts };

static void experts_of_floats(struct test_backend *tb)
{
    workspace_for(tb, 257, 256, 256);
    for (int i = 0; i < 3 * TOKEN_COUNTS; i++) {
        const enum dtype dtype = types[i % 3];
        const struct experts_case c = {.num_tokens = token_counts[i / 3],
                                       .num_experts = i % 2 ? 8 : 12,
                                       .top_k = 1 + i % 4,
                                       .size = i % 4 ? 96 : 160,
                                       .hidden = i % 5 ? 128 : 256,
                                       .format = weight_format_of(i % 7 ? dtype : DTYPE_BFLOAT16),
                                       .dtype = dtype,
                                       .bias = i % 3 == 1,
                                       .stacked = i % 2,
                                       .two_parts = i % 4 == 0,
                                       .weights_first = i % 6 == 5,
                                       .base = i % 3 > 0,
                                       .base_gate = i % 3 == 2,
                                       .gate = {.activation = i % NUM_GATE_ACTIVATIONS},
                                       .routing = i % 3 ? ROUTING_RANDOM : ROUTING_SKEWED};
        check_experts(tb, &c);
    }
}

static void experts_of_every_format(struct test_backend *tb)
{
    static const enum weight_format formats[] = {WEIGHT_FP8, WEIGHT_INT8, WEIGHT_INT4};
    workspace_for(tb, 257, 256, 512);
    for (int i = 0; i < 3 * TOKEN_COUNTS; i++) {
        const enum weight_format format = formats[i % 3];
        const bool is_int4 = format == WEIGHT_INT4;
        const struct experts_case c = {.num_tokens = token_counts[i / 3],
                                       .num_experts = 8,
                                       .top_k = 1 + i % 4,
                                       .size = 128,
                                       .hidden = 256,
                                       .format = format,
                                       .group_size = is_int4                ? (i % 2 ? 32 : 128)
                                                     : format == WEIGHT_FP8 ? 128
                                                                            : 0,
                                       .scale_rows = format == WEIGHT_FP8 && i % 2 ? 128 : 1,
                                       .dtype = types[i % 5 ? 2 : i % 3],
                                       .zeros = is_int4 && i % 4 < 2,
                                       .ordered = is_int4 && i % 4 == 2,
                                       .bias = i % 4 == 1,
                                       .stacked = i % 2,
                                       .two_parts = i % 4 == 2,
                                       .base = i % 3 > 0,
                                       .routing = i % 5 ? ROUTING_RANDOM : ROUTING_ONE_EXPERT};
        check_experts(tb, &c);
    }
}

/* gpt-oss: rows of whole steps of 128 input features, with half a step behind them, and of a quarter. */
static void experts_of_mxfp4(struct test_backend *tb)
{
    static const int64_t sizes[][2] = {{128, 256}, {192, 704}, {64, 192}, {96, 160}, {320, 64}};
    workspace_for(tb, 257, 704, 704);
    for (int i = 0; i < 5 * TOKEN_COUNTS; i++) {
        const struct experts_case c = {.num_tokens = token_counts[i % TOKEN_COUNTS],
                                       .num_experts = i % 3 ? 8 : 32,
                                       .top_k = i % 2 ? 4 : 1 + i % 3,
                                       .size = sizes[i % 5][0],
                                       .hidden = sizes[i % 5][1],
                                       .format = WEIGHT_MXFP4,
                                       .group_size = 32,
                                       .dtype = types[i % 4 ? 2 : i / 4 % 2],
                                       .bias = i % 4 > 0,
                                       .stacked = i % 2,
                                       .two_parts = i % 8 == 0,
                                       .base = i % 6 == 5,
                                       .gate = {.kind = GATE_SWIGLU_OAI, .limit = i % 7 ? 7 : 0.5f},
                                       .routing = (enum routing)(i % 3)};
        check_experts(tb, &c);
    }
}

/* On a GPU these have more tokens than its kernels for few. */
static void experts_of_quantized_rows(struct test_backend *tb)
{
    static const int32_t counts[] = {6, 20, 64, 130, 300, 600};
    workspace_for(tb, 600, 272, 544);
    for (int i = 0; i < 24; i++) {
        const struct experts_case c = {.num_tokens = counts[i % 6],
                                       .num_experts = i % 4 == 3 ? 40 : 4,
                                       .top_k = 1 + i % 3,
                                       .size = i % 2 ? 272 : 80,
                                       .hidden = i % 3 ? 272 : 144,
                                       .format = WEIGHT_FP8,
                                       .quantize_x = true,
                                       .dtype = i % 4 == 1 ? DTYPE_FLOAT16 : DTYPE_BFLOAT16,
                                       .bias = i % 4 == 2,
                                       .stacked = true,
                                       .base = i % 2,
                                       .gate = {.activation = i % NUM_GATE_ACTIVATIONS},
                                       .routing = (enum routing)(i / 6 % 3)};
        check_experts(tb, &c);
    }
}

/* Blocks of 128 x 128 of a weight and groups of 128 elements of rows have scales. */
static void experts_of_quantized_blocks(struct test_backend *tb)
{
    static const int32_t counts[] = {5, 9, 40, 70, 150, 400};
    workspace_for(tb, 400, 896, 896);
    for (int i = 0; i < 18; i++) {
        const struct experts_case c = {
            .num_tokens = counts[i % 6],
            .num_experts = i % 4 == 3 ? 40 : 6,
            .top_k = 1 + i % 3,
            .size = i % 2 ? 128 : 384,
            .hidden = i % 3 ? 256 : 896,
            .format = WEIGHT_FP8,
            .group_size = 128,
            .scale_rows = 128,
            .quantize_x = true,
            .dtype = i % 4 == 1 ? DTYPE_FLOAT16 : DTYPE_BFLOAT16,
            .bias = i % 4 == 2,
            .stacked = true,
            .weights_first = i == 7,
            .base = i % 2,
            .gate = {.kind = i % 5 == 2 ? GATE_NONE : GATE_MULTIPLY, .activation = i % NUM_GATE_ACTIVATIONS},
            .routing = (enum routing)(i / 6 % 3)};
        check_experts(tb, &c);
    }
}

static void gates(struct test_backend *tb)
{
    workspace_for(tb, 40, 128, 256);
    for (int i = 0; i < 12; i++) {
        const struct experts_case c = {
            .num_tokens = i % 3 == 0   ? 1
                          : i % 3 == 1 ? 9
                                       : 40,
            .num_experts = 4,
            .top_k = 2,
            .size = 64,
            .hidden = 128,
            .format = i % 2 ? WEIGHT_BFLOAT16 : WEIGHT_FLOAT32,
            .dtype = i % 2 ? DTYPE_BFLOAT16 : DTYPE_FLOAT32,
            .bias = true,
            .stacked = true,
            .gate = {.kind = i % 4 < 2 ? GATE_SWIGLU_OAI : GATE_MULTIPLY, .limit = i % 4 == 1 ? 0 : 0.5f}};
        check_experts(tb, &c);
    }
}

/* Of every format, and of rows that are quantized; relu2 twice as often as the other activations. */
static void experts_without_gates(struct test_backend *tb)
{
    static const enum activation activations[] = {ACTIVATION_RELU2, ACTIVATION_SILU, ACTIVATION_RELU2,
                                                  ACTIVATION_RELU,  ACTIVATION_GELU, ACTIVATION_GELU_TANH};
    static const enum weight_format formats[] = {WEIGHT_BFLOAT16, WEIGHT_FP8,  WEIGHT_FLOAT16, WEIGHT_INT4,
                                                 WEIGHT_FLOAT32,  WEIGHT_INT8, WEIGHT_MXFP4};
    static const int32_t counts[] = {1, 3, 9, 40, 257};
    workspace_for(tb, 257, 256, 256);
    for (int i = 0; i < 7 * 5; i++) {
        const enum weight_format format = formats[i % 7];
        const bool is_int4 = format == WEIGHT_INT4;
        const struct experts_case c = {.num_tokens = counts[i / 7],
                                       .num_experts = i % 2 ? 8 : 12,
                                       .top_k = 1 + i % 4,
                                       .size = i % 4 ? 192 : 128,
                                       .hidden = i % 5 ? 128 : 256,
                                       .format = format,
                                       .group_size = is_int4                  ? 64
                                                     : format == WEIGHT_MXFP4 ? 32
                                                                              : 0,
                                       .dtype = format == WEIGHT_FLOAT32 ? DTYPE_FLOAT32 : types[1 + i % 2],
                                       .zeros = is_int4 && i % 2,
                                       .ordered = is_int4 && i % 4 == 2,
                                       .bias = i % 3 == 1,
                                       .stacked = i % 2,
                                       .weights_first = i % 6 == 5,
                                       .base = i % 3 > 0,
                                       .quantize_x = format == WEIGHT_FP8 && i % 2,
                                       .gate = {.kind = GATE_NONE, .activation = activations[i % 6]},
                                       .routing = (enum routing)(i % 3)};
        check_experts(tb, &c);
    }
}

/* Few tokens, and more output features than a tile has for each multiprocessor of a GPU; rows of more quads than are
 * under way at once, and of fewer. */
static void wide_experts(struct test_backend *tb)
{
    static const enum weight_format formats[] = {WEIGHT_FP8, WEIGHT_FP8, WEIGHT_INT8, WEIGHT_INT4, WEIGHT_BFLOAT16};
    enum { PLAIN, BLOCKS, NUM_FORMATS = sizeof formats / sizeof *formats };
    workspace_for(tb, 4, 2816, 2816);
    for (int i = 0; i < 3 * NUM_FORMATS; i++) {
        const int format = i % NUM_FORMATS, round = i / NUM_FORMATS;
        const bool is_int4 = formats[format] == WEIGHT_INT4;
        const struct experts_case c = {.num_tokens = 1 + round * round - round / 2,
                                       .num_experts = i % 3 ? 12 : 64,
                                       .top_k = i % 3 == 2 ? 6 : 1 + i % 3,
                                       .size = i % 2 ? 128 : 256,
                                       .hidden = format == BLOCKS ? 2816 : 2688,
                                       .format = formats[format],
                                       .group_size = format == BLOCKS || is_int4 ? 128 : 0,
                                       .scale_rows = format == BLOCKS ? 128 : 1,
                                       .dtype = is_int4 && round == 0 ? DTYPE_FLOAT16 : DTYPE_BFLOAT16,
                                       .zeros = is_int4,
                                       .stacked = true,
                                       .base = i % 3 > 0,
                                       .base_gate = i % 3 == 2,
                                       .gate = {.kind = format == PLAIN ? GATE_NONE : GATE_MULTIPLY,
                                                .activation = format == PLAIN ? ACTIVATION_RELU2 : ACTIVATION_SILU},
                                       .routing = (enum routing)(i % 3)};
        check_experts(tb, &c);
    }
}

/* FP8 for one to four tokens of an expert, whose rows have more input features than are made float16 at once. x is
 * within the range of float16, and far above and below it. */
static void few_experts_of_fp8(struct test_backend *tb)
{
    workspace_for(tb, 4, 4608, 256);
    for (int i = 0; i < 8; i++) {
        const bool has_blocks = i / 4;
        const struct experts_case c = {.num_tokens = 1 + i % 4,
                                       .num_experts = 3,
                                       .top_k = i % 4 == 1 ? 2 : 1,
                                       .size = i % 2 ? 128 : 1152,
                                       .hidden = i % 2 ? 4608 : 128,
                                       .format = WEIGHT_FP8,
                                       .group_size = has_blocks ? 128 : 0,
                                       .scale_rows = has_blocks ? 128 : 1,
                                       .dtype = i % 3 == 2 ? DTYPE_FLOAT16 : DTYPE_BFLOAT16,
                                       .stacked = true,
                                       .base = i % 3 > 0,
                                       .x_exponent = i % 3 ? 0 : 40 - 80 * (i % 2),
                                       .gate = {.kind = i % 4 == 3 ? GATE_NONE : GATE_MULTIPLY},
                                       .routing = i % 4 == 1 ? ROUTING_RANDOM : ROUTING_ONE_EXPERT};
        check_experts(tb, &c);
    }
}

/* Of each format, some of the experts, where other ranks have the others: none, some or all of a token's are here. */
static void experts_of_a_rank(struct test_backend *tb)
{
    static const enum weight_format formats[] = {WEIGHT_BFLOAT16, WEIGHT_FP8,     WEIGHT_FP8,
                                                 WEIGHT_FP8,      WEIGHT_INT8,    WEIGHT_INT4,
                                                 WEIGHT_MXFP4,    WEIGHT_FLOAT32, WEIGHT_FLOAT16};
    enum { ROWS = 1, BLOCKS, NUM_FORMATS = sizeof formats / sizeof *formats };
    static const int32_t counts[] = {1, 2, 4, 9, 16, 33, 70, 260};
    workspace_for(tb, 260, 256, 256);
    for (int i = 0; i < 8 * NUM_FORMATS; i++) {
        const int format = i % NUM_FORMATS, round = i / NUM_FORMATS;
        const enum weight_format f = formats[format];
        const struct experts_case c = {.num_tokens = counts[round],
                                       .num_experts = i % 4 ? 5 : 1,
                                       .top_k = 1 + i % 5,
                                       .first_own = i % 3 * 5,
                                       .all_experts = 16,
                                       .size = 128,
                                       .hidden = 256,
                                       .format = f,
                                       .group_size = f == WEIGHT_INT4 || format == BLOCKS ? 128
                                                     : f == WEIGHT_MXFP4                  ? 32
                                                                                          : 0,
                                       .scale_rows = format == BLOCKS ? 128 : 1,
                                       .quantize_x = format == ROWS || format == BLOCKS,
                                       .dtype = f == WEIGHT_FLOAT32   ? DTYPE_FLOAT32
                                                : f == WEIGHT_FLOAT16 ? DTYPE_FLOAT16
                                                                      : DTYPE_BFLOAT16,
                                       .bias = i % 3 == 1,
                                       .stacked = i % 2,
                                       .weights_first = i % 6 == 5,
                                       .base = i % 3 > 0,
                                       .base_gate = i % 3 == 2,
                                       .gate = {.kind = i % 5 == 2 ? GATE_NONE : GATE_MULTIPLY},
                                       .routing = (enum routing)(i % 3)};
        check_experts(tb, &c);
    }
}

/* Many experts of which most have no tokens, or one has them all. */
static void empty_experts(struct test_backend *tb)
{
    workspace_for(tb, 600, 128, 128);
    for (int i = 0; i < 8; i++) {
        const struct experts_case c = {.num_tokens = i % 4 == 0   ? 1
                                                     : i % 4 == 1 ? 4
                                                     : i % 4 == 2 ? 50
                                                                  : 600,
                                       .num_experts = 128,
                                       .top_k = i < 4 ? 8 : 1,
                                       .size = 32,
                                       .hidden = 64,
                                       .format = WEIGHT_BFLOAT16,
                                       .dtype = DTYPE_BFLOAT16,
                                       .stacked = i % 3 > 0,
                                       .routing = i < 4 ? ROUTING_RANDOM : ROUTING_ONE_EXPERT};
        check_experts(tb, &c);
    }
}

static void thousands_of_tokens(struct test_backend *tb)
{
    workspace_for(tb, 8192, 128, 128);
    for (int i = 0; i < 4; i++) {
        const struct experts_case c = {.num_tokens = i == ROUTING_ONE_EXPERT ? 8192 : 3000,
                                       .num_experts = 16,
                                       .top_k = 2,
                                       .size = 64,
                                       .hidden = 128,
                                       .format = i == 0 ? WEIGHT_BFLOAT16 : WEIGHT_FP8 + i - 1,
                                       .group_size = 32,
                                       .dtype = DTYPE_BFLOAT16,
                                       .stacked = true,
                                       .routing = (enum routing)(i % 3)};
        check_experts(tb, &c);
    }
}

/* Results are right even if the workspace was made for fewer tokens. */
static void small_workspace(struct test_backend *tb)
{
    workspace_for(tb, 1, 128, 128);
    for (int i = 0; i < 4; i++) {
        const struct experts_case c = {.num_tokens = 150,
                                       .num_experts = 3,
                                       .top_k = 2,
                                       .size = 64,
                                       .hidden = 128,
                                       .format = i == 0 ? WEIGHT_FLOAT32 : WEIGHT_FP8 + i - 1,
                                       .ordered = i == 3,
                                       .two_parts = true,
                                       .dtype = DTYPE_FLOAT32};
        check_experts(tb, &c);
    }
}

static void on_every_backend(void **state, void (*test)(struct test_backend *tb))
{
    struct kernel_test *all = *state;
    for (int i = 0; i < all->num_backends; i++)
        if (all->backends[i].b->experts_gate_up) test(&all->backends[i]);
}

#define EVERY_BACKEND_TEST(name)                                                                                       \
    static void test_##name(void **state)                                                                              \
    {                                                                                                                  \
        on_every_backend(state, name);                                                                                 \
    }
EVERY_BACKEND_TEST(routes)
EVERY_BACKEND_TEST(damaged_logits)
EVERY_BACKEND_TEST(experts_of_floats)
EVERY_BACKEND_TEST(experts_of_every_format)
EVERY_BACKEND_TEST(experts_of_mxfp4)
EVERY_BACKEND_TEST(experts_of_quantized_rows)
EVERY_BACKEND_TEST(experts_of_quantized_blocks)
EVERY_BACKEND_TEST(gates)
EVERY_BACKEND_TEST(experts_without_gates)
EVERY_BACKEND_TEST(wide_experts)
EVERY_BACKEND_TEST(few_experts_of_fp8)
EVERY_BACKEND_TEST(experts_of_a_rank)
EVERY_BACKEND_TEST(empty_experts)
EVERY_BACKEND_TEST(thousands_of_tokens)
EVERY_BACKEND_TEST(small_workspace)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_routes),
        cmocka_unit_test(test_damaged_logits),
        cmocka_unit_test(test_experts_of_floats),
        cmocka_unit_test(test_experts_of_every_format),
        cmocka_unit_test(test_experts_of_mxfp4),
        cmocka_unit_test(test_experts_of_quantized_rows),
        cmocka_unit_test(test_experts_of_quantized_blocks),
        cmocka_unit_test(test_gates),
        cmocka_unit_test(test_experts_without_gates),
        cmocka_unit_test(test_wide_experts),
        cmocka_unit_test(test_few_experts_of_fp8),
        cmocka_unit_test(test_experts_of_a_rank),
        cmocka_unit_test(test_empty_experts),
        cmocka_unit_test(test_thousands_of_tokens),
        cmocka_unit_test(test_small_workspace),
    };
    cmocka_set_test_filter(getenv("QUIRE_TEST_FILTER"));
    return cmocka_run_group_tests(tests, kernel_test_setup, kernel_test_teardown);
}
