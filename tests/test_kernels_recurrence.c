/* The operations of recurrent layers against float64: short convolutions, every kind of recurrence, and gated norms.
 * States lie in slots whose neighbours, and the null slot, are NaN; batches mix decodes, chains, entries without
 * tokens, and prefills. */
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

/* ---- batches and their states ---- */

enum { MAX_ENTRIES = 24, NUM_SLOTS = 24 };

struct entry {
    int32_t num_tokens, source, slot;
};

/* The entries of a batch, as struct state_batch describes them. */
struct layout {
    const char *name;
    int32_t count;
    struct entry entries[MAX_ENTRIES];
};

#define CONTINUES STATE_CONTINUES

static const struct layout layouts[] = {
    {"a decode", 1, {{1, 3, 3}}},
    {"a prefill", 1, {{37, 0, 2}}},
    {"decodes", 5, {{1, 3, 3}, {1, 1, 4}, {1, 0, 2}, {1, 9, 0}, {1, 0, 0}}},
    {"a chain", 8, {{1, 2, 3}, {1, -1, 0}, {1, -1, 2}, {1, -1, 5}, {1, -1, 4}, {1, -1, 0}, {1, -1, 0}, {1, -1, 9}}},
    {"chains and padding",
     11,
     {{1, 4, 4},
      {1, 0, 0},
      {1, -1, 0},
      {1, -1, 11},
      {0, 0, 0},
      {0, 0, 0},
      {1, 5, 6},
      {1, -1, 5},
      {1, 8, 8},
      {0, 0, 0}}},
    {"all kinds",
     11,
     {{1, 2, 2},
      {1, 7, 1},
      {1, -1, 0},
      {1, -1, 7},
      {0, 0, 0},
      {1, 0, 3},
      {70, 0, 9},
      {33, 6, 6},
      {2, 10, 12},
      {64, 0, 0},
      {5, 13, 14}}},
};
enum { NUM_LAYOUTS = sizeof layouts / sizeof *layouts };

/* A batch on a device, and the states of a layer there. */
struct batch_on {
    const struct test_backend *tb;
    const struct layout *layout;
    struct state_batch args;
    struct tensor starts, sources, slots, states;
    int64_t size, stride;        /* of a slot */
    double *before[NUM_SLOTS];   /* [size] what a slot holds; NULL: NaN */
    double *expected[NUM_SLOTS]; /* [size] what it is to hold; NULL: what it held */
    double *current;             /* [size] the state after the token that was computed last */
};

static void make_entries(struct batch_on *b)
{
    int32_t starts[MAX_ENTRIES + 1] = {0}, sources[MAX_ENTRIES], slots[MAX_ENTRIES], run = 0;
    const struct layout *l = b->layout;
    b->args = (struct state_batch){.num_seqs = l->count, .max_run_len = 1};
    for (int32_t i = 0; i < l->count; i++) {
        const struct entry *e = &l->entries[i];
        starts[i + 1] = starts[i] + e->num_tokens, sources[i] = e->source, slots[i] = e->slot;
        run = e->source == CONTINUES ? run + 1 : 1;
        if (run > b->args.max_run_len) b->args.max_run_len = run;
        if (e->num_tokens > b->args.max_query_len) b->args.max_query_len = e->num_tokens;
        if (e->num_tokens <= 1 && b->args.num_decodes == i) b->args.num_decodes++;
    }
    b->args.num_tokens = starts[l->count];
    b->starts = tensor_bytes(b->tb->b, starts, (int64_t)sizeof *starts * (l->count + 1));
    b->sources = tensor_bytes(b->tb->b, sources, (int64_t)sizeof *sources * l->count);
    b->slots = tensor_bytes(b->tb->b, slots, (int64_t)sizeof *slots * l->count);
    b->args.query_start = b->starts.data, b->args.sources = b->sources.data, b->args.slots = b->slots.data;
}

/* Slots that entries read get numbers, rounded to `dtype`; everything else is NaN. */
static void batch_make(struct batch_on *b, const struct test_backend *tb, const struct layout *layout, int64_t size,
                       enum dtype dtype)
{
    *b = (struct batch_on){.tb = tb, .layout = layout, .size = size, .stride = size + 16};
    make_entries(b);
    b->states = tensor_poison(tb->b, DTYPE_FLOAT32, NUM_SLOTS * b->stride);
    b->current = calloc((size_t)size + 1, sizeof *b->current);
    for (int32_t i = 0; i < layout->count; i++) {
        const int32_t slot = layout->entries[i].source;
        if (slot <= 0) continue;
        b->before[slot] = malloc(sizeof(double) * (size_t)size);
        for (int64_t j = 0; j < size; j++) {
            const double x = 2 * random_uniform(tb->random) - 1;
            tensor_set(&b->states, slot * b->stride + j,
                       reference_decode(dtype, dtype == DTYPE_FLOAT32 ? 0 : reference_encode(dtype, x)) +
                           (dtype == DTYPE_FLOAT32 ? x : 0));
            b->before[slot][j] = tensor_get(&b->states, slot * b->stride + j);
        }
    }
    tensor_upload(&b->states);
}

/* Before the tokens of entry i. */
static void batch_begin(struct batch_on *b, int32_t i)
{
    const int32_t source = b->layout->entries[i].source;
    if (source == CONTINUES) return;
    for (int64_t j = 0; j < b->size; j++) b->current[j] = source == 0 ? 0 : b->before[source][j];
}

/* After them. */
static void batch_end(struct batch_on *b, int32_t i)
{
    const int32_t slot = b->layout->entries[i].slot;
    if (slot == 0) return;
    b->expected[slot] = malloc(sizeof(double) * (size_t)b->size + 1);
    if (b->size > 0) memcpy(b->expected[slot], b->current, sizeof(double) * (size_t)b->size);
}

/* Each slot holds what it is to hold, or what it held before. */
static void check_states(struct batch_on *b, const char *what, double tolerance)
{
    uint8_t *old = malloc((size_t)b->states.bytes + 1);
    memcpy(old, b->states.host, (size_t)b->states.bytes);
    tensor_download(&b->states);
    for (int64_t slot = 0; slot < NUM_SLOTS; slot++) {
        struct tensor view = b->states;
        const int64_t start = slot * b->stride * 4, written = b->expected[slot] ? b->size * 4 : 0;
        view.host += start;
        if (written) check_within(b->tb, what, &view, b->expected[slot], b->size, tolerance);
        if (memcmp(view.host + written, old + start + written, (size_t)(b->stride * 4 - written)) != 0)
            fail_msg("%s: %s: slot %d was written", b->tb->name, what, (int)slot);
    }
    free(old);
}

static struct tensor copy_of(const struct tensor *t, struct backend *b)
{
    struct tensor copy = tensor_bytes(b, t->host, t->bytes);
    copy.dtype = t->dtype;
    copy.count = t->count;
    return copy;
}

/* Gives *b, which was assigned from another one, tensors of its own on another backend. */
static void batch_copy(struct batch_on *b, const struct test_backend *tb)
{
    b->tb = tb;
    b->starts = copy_of(&b->starts, tb->b), b->sources = copy_of(&b->sources, tb->b);
    b->slots = copy_of(&b->slots, tb->b), b->states = copy_of(&b->states, tb->b);
    b->args.query_start = b->starts.data, b->args.sources = b->sources.data, b->args.slots = b->slots.data;
}

static void batch_free_on(struct batch_on *b, bool is_copy)
{
    for (int i = 0; i < NUM_SLOTS && !is_copy; i++) free(b->before[i]), free(b->expected[i]);
    if (!is_copy) free(b->current);
    tensor_free(&b->starts), tensor_free(&b->sources), tensor_free(&b->slots), tensor_free(&b->states);
}

/* Random rows of `columns` elements, `stride` apart; what lies between is NaN. */
static struct tensor random_rows(const struct test_backend *tb, enum dtype dtype, int64_t rows, int64_t columns,
                                 int64_t stride, double amplitude)
{
    struct tensor t = tensor_poison(tb->b, dtype, rows * stride);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++)
            tensor_set(&t, r * stride + c, (2 * random_uniform(tb->random) - 1) * amplitude);
    tensor_upload(&t);
    return t;
}

static const void *at(const struct tensor *t, int64_t index)
{
    return (const uint8_t *)t->data + index * dtype_size(t->dtype);
}

static double rounded(enum dtype dtype, double x)
{
    return dtype == DTYPE_FLOAT32 ? (double)(float)x : reference_decode(dtype, reference_encode(dtype, x));
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double softplus(double x)
{
    return fmax(x, 0) + log1p(exp(-fabs(x)));
}

/* A GPU may compute states from short products. */
static double state_tolerance(const struct test_backend *tb, enum dtype dtype)
{
    return dtype == DTYPE_FLOAT32 || !tb->b->discrete ? 1e-5 : 1e-2;
}

/* ---- short_conv ---- */

struct conv_case {
    int32_t channels, width;
    bool input_gate, output_gate, bias, silu;
    enum dtype dtype;
};

struct conv_fixture {
    const struct conv_case *c;
    struct batch_on batch;
    struct tensor rows, weight, bias;
    int64_t stride;
    double *row_values, *weight_values; /* of the tensors */
    double *expected;                   /* [num_tokens, channels] */
};

/* Elements of a token of x (0), the input gate (1) and the output gate (2), which lie side by side. */
static double conv_row(const struct conv_fixture *f, int part, int64_t token, int64_t channel)
{
    return f->row_values[token * f->stride + part * f->c->channels + channel];
}

static void expect_conv_token(struct conv_fixture *f, int64_t token)
{
    const struct conv_case *c = f->c;
    const int32_t last = c->width - 1;
    for (int64_t i = 0; i < c->channels; i++) {
        double *state = f->batch.current + i * last, u = conv_row(f, 0, token, i), y;
        if (c->input_gate) u = rounded(c->dtype, u * conv_row(f, 1, token, i));
        y = (c->bias ? tensor_get(&f->bias, i) : 0) + f->weight_values[i * c->width + last] * u;
        for (int32_t j = 0; j < last; j++) y += f->weight_values[i * c->width + j] * state[j];
        for (int32_t j = 0; j + 1 < last; j++) state[j] = state[j + 1];
        if (last > 0) state[last - 1] = u;
        if (c->silu) y *= sigmoid(y);
        f->expected[token * c->channels + i] = y * (c->output_gate ? conv_row(f, 2, token, i) : 1);
    }
}

static void conv_make(struct conv_fixture *f, const struct conv_case *c, const struct test_backend *tb,
                      const struct layout *layout)
{
    f->c = c;
    batch_make(&f->batch, tb, layout, (int64_t)c->channels * (c->width - 1), c->dtype);
    const int64_t tokens = f->batch.args.num_tokens;
    f->stride = 3 * c->channels + 8;
    f->rows = random_rows(tb, c->dtype, tokens, 3 * c->channels, f->stride, 1);
    f->weight = tensor_random(tb->b, DTYPE_FLOAT32, (int64_t)c->channels * c->width, 1, tb->random);
    f->bias = tensor_random(tb->b, DTYPE_FLOAT32, c->channels, 1, tb->random);
    f->row_values = tensor_doubles(&f->rows), f->weight_values = tensor_doubles(&f->weight);
    f->expected = malloc(sizeof(double) * (size_t)(tokens * c->channels + 1));
    for (int32_t i = 0, t = 0; i < layout->count; i++) {
        batch_begin(&f->batch, i);
        for (int32_t n = 0; n < layout->entries[i].num_tokens; n++) expect_conv_token(f, t++);
        batch_end(&f->batch, i);
    }
}

static struct short_conv_args conv_arguments(const struct conv_fixture *f, struct tensor *out)
{
    const struct conv_case *c = f->c;
    return (struct short_conv_args){.out = out->data,
                                    .x = f->rows.data,
                                    .input_gate = c->input_gate ? at(&f->rows, c->channels) : NULL,
                                    .output_gate = c->output_gate ? at(&f->rows, 2 * c->channels) : NULL,
                                    .x_stride = f->stride,
                                    .weight = f->weight.data,
                                    .bias = c->bias ? f->bias.data : NULL,
                                    .silu = c->silu,
                                    .channels = c->channels,
                                    .width = c->width,
                                    .states = f->batch.states.data,
                                    .state_stride = f->batch.stride,
                                    .batch = f->batch.args,
                                    .dtype = c->dtype};
}

static void conv_free(struct conv_fixture *f)
{
    free(f->expected), free(f->row_values), free(f->weight_values);
    batch_free_on(&f->batch, false);
    tensor_free(&f->rows), tensor_free(&f->weight), tensor_free(&f->bias);
}

static void check_conv(const struct test_backend *tb, const struct conv_case *c, const struct layout *layout)
{
    struct conv_fixture f;
    char what[160];
    conv_make(&f, c, tb, layout);
    const int64_t count = (int64_t)f.batch.args.num_tokens * c->channels;
    struct tensor out = tensor_poison(tb->b, c->dtype, count);
    const struct short_conv_args args = conv_arguments(&f, &out);
    tb->b->short_conv(tb->b, &args);
    tensor_download(&out);
    snprintf(what, sizeof what, "short_conv: %s, %d channels, width %d, %s", layout->name, c->channels, c->width,
             dtype_name(c->dtype));
    check_close(tb, what, &out, f.expected, count, c->dtype);
    check_states(&f.batch, what, 1e-5);
    tensor_free(&out);
    conv_free(&f);
}

static void short_convs(void **state)
{
    struct kernel_test *test = *state;
    static const int32_t channels[] = {8, 48, 520, 1032}, widths[] = {4, 3, 2, 5};
    for (int b = 0; b < test->num_backends; b++)
        for (int i = 0; i < 48; i++) {
            struct test_backend *tb = &test->backends[b];
            const struct conv_case c = {.channels = channels[i % 4],
                                        .width = widths[i / 2 % 4],
                                        .input_gate = i % 3 == 1,
                                        .output_gate = i % 3 == 1 || i % 5 == 2,
                                        .bias = i % 2 == 0,
                                        .silu = i % 3 != 1,
                                        .dtype = types[i / 3 % 3]};
            if (tb->b->short_conv && kernel_test_takes(tb)) check_conv(tb, &c, &layouts[i % NUM_LAYOUTS]);
        }
}

static void short_convs_of_models(void **state)
{
    struct kernel_test *test = *state;
    static const struct conv_case cases[] = {{8192, 4, .silu = true},
                                             {2048, 3, .input_gate = true, .output_gate = true},
                                             {4352, 4, .silu = true, .bias = true},
                                             {3072, 1, .silu = true}}; /* lightning attention has no convolution */
    for (int b = 0; b < test->num_backends; b++)
        for (int i = 0; i < 12; i++) {
            struct test_backend *tb = &test->backends[b];
            struct conv_case c = cases[i % 4];
            c.dtype = types[i / 4];
            if (tb->b->short_conv && kernel_test_takes(tb)) check_conv(tb, &c, &layouts[2 + i % 3]);
        }
}

/* ---- recurrence ---- */

struct recurrence_case {
    enum recurrence_kind kind;
    int32_t num_k_heads, num_v_heads, k_size, v_size;
    bool norm_qk, skip;
    enum dtype dtype;
};

struct recurrence_fixture {
    const struct recurrence_case *c;
    struct batch_on batch;
    struct recurrence_params params;
    struct tensor rows, a, b, a_log, dt_bias, skip;
    int64_t stride, a_size, a_stride, b_stride;
    double *expected; /* [num_tokens, num_v_heads, v_size] */
};

/* q or k of a head (part 0 or 1), normed and scaled. */
static void load_head(const struct recurrence_fixture *f, double *out, int part, int64_t token, int32_t v_head)
{
    const struct recurrence_case *c = f->c;
    const int64_t head = v_head / (c->num_v_heads / c->num_k_heads);
    const int64_t first = token * f->stride + (part * c->num_k_heads + head) * c->k_size;
    double sum = 1e-6, factor = part == 0 ? (double)f->params.scale : 1;
    for (int32_t i = 0; i < c->k_size; i++) out[i] = tensor_get(&f->rows, first + i), sum += out[i] * out[i];
    if (c->norm_qk) factor /= sqrt(sum);
    for (int32_t i = 0; i < c->k_size; i++) out[i] *= factor;
}

/* The decays of a head's columns, and beta. */
static double load_decays(const struct recurrence_fixture *f, double *decays, int64_t token, int32_t head)
{
    const struct recurrence_case *c = f->c;
    const double a_log = tensor_get(&f->a_log, head);
    double beta = 1;
    if (c->kind == RECURRENCE_DELTA || c->kind == RECURRENCE_DELTA_CHANNELS)
        beta = (double)f->params.beta_factor * sigmoid(tensor_get(&f->b, token * f->b_stride + head));
    for (int32_t i = 0; i < c->k_size; i++) {
        const int64_t index = c->kind == RECURRENCE_DELTA_CHANNELS ? (int64_t)head * c->k_size + i : head;
        if (c->kind == RECURRENCE_FIXED) {
            decays[i] = exp(-a_log);
            continue;
        }
        double step = softplus(tensor_get(&f->a, token * f->a_stride + index) + tensor_get(&f->dt_bias, index));
        if (c->kind == RECURRENCE_SSD)
            beta = step = fmin(fmax(step, (double)f->params.beta_min), (double)f->params.beta_max);
        decays[i] = exp(-exp(a_log) * step);
    }
    return beta;
}

static void expect_head(struct recurrence_fixture *f, int64_t token, int32_t head)
{
    const struct recurrence_case *c = f->c;
    const bool delta = c->kind == RECURRENCE_DELTA || c->kind == RECURRENCE_DELTA_CHANNELS;
    double q[256], k[256], decays[256];
    const double beta = load_decays(f, decays, token, head);
    load_head(f, q, 0, token, head);
    load_head(f, k, 1, token, head);
    for (int64_t r = 0; r < c->v_size; r++) {
        const int64_t row = (int64_t)head * c->v_size + r;
        const double v = tensor_get(&f->rows, token * f->stride + 2 * c->num_k_heads * c->k_size + row);
        double *s = f->batch.current + row * c->k_size, read = 0, out = c->skip ? tensor_get(&f->skip, head) * v : 0;
        for (int32_t i = 0; i < c->k_size; i++) s[i] *= decays[i], read += s[i] * k[i];
        for (int32_t i = 0; i < c->k_size; i++) {
            s[i] += beta * (v - (delta ? read : 0)) * k[i];
            out += s[i] * q[i];
        }
        f->expected[token * c->num_v_heads * c->v_size + row] = out;
    }
}

static void expect_recurrence(struct recurrence_fixture *f)
{
    const struct layout *layout = f->batch.layout;
    for (int32_t i = 0, t = 0; i < layout->count; i++) {
        batch_begin(&f->batch, i);
        for (int32_t n = 0; n < layout->entries[i].num_tokens; n++, t++)
            for (int32_t h = 0; h < f->c->num_v_heads; h++) expect_head(f, t, h);
        batch_end(&f->batch, i);
    }
}

static void make_params(struct recurrence_fixture *f, const struct test_backend *tb)
{
    const struct recurrence_case *c = f->c;
    f->a_log = tensor_random(tb->b, DTYPE_FLOAT32, c->num_v_heads, 2, tb->random);
    f->dt_bias = tensor_random(tb->b, DTYPE_FLOAT32, f->a_size, 1, tb->random);
    f->skip = tensor_random(tb->b, DTYPE_FLOAT32, c->num_v_heads, 1, tb->random);
    for (int32_t h = 0; h < c->num_v_heads; h++)
        tensor_set(&f->a_log, h, c->kind == RECURRENCE_FIXED ? fabs(tensor_get(&f->a_log, h)) / 4 : h % 5 - 4.2);
    tensor_upload(&f->a_log);
    f->params = (struct recurrence_params){.kind = c->kind,
                                           .num_k_heads = c->num_k_heads,
                                           .num_v_heads = c->num_v_heads,
                                           .k_size = c->k_size,
                                           .v_size = c->v_size,
                                           .a_log = f->a_log.data,
                                           .dt_bias = c->kind == RECURRENCE_FIXED ? NULL : f->dt_bias.data,
                                           .skip = c->skip ? f->skip.data : NULL,
                                           .scale = 1 / sqrtf((float)c->k_size),
                                           .beta_factor = c->num_v_heads % 3 == 0 ? 2 : 1,
                                           .beta_min = 0.2f,
                                           .beta_max = c->num_v_heads % 3 == 0 ? INFINITY : 1.5f,
                                           .norm_qk = c->norm_qk};
}

static void recurrence_make(struct recurrence_fixture *f, const struct recurrence_case *c,
                            const struct test_backend *tb, const struct layout *layout)
{
    *f = (struct recurrence_fixture){.c = c};
    batch_make(&f->batch, tb, layout, (int64_t)c->num_v_heads * c->v_size * c->k_size, DTYPE_FLOAT32);
    const int64_t tokens = f->batch.args.num_tokens, columns = 2 * c->num_k_heads * c->k_size;
    const int64_t v_columns = (int64_t)c->num_v_heads * c->v_size;
    f->a_size = c->kind == RECURRENCE_DELTA_CHANNELS ? (int64_t)c->num_v_heads * c->k_size : c->num_v_heads;
    f->stride = columns + v_columns + 16, f->a_stride = f->a_size + 16, f->b_stride = c->num_v_heads + 8;
    f->rows = random_rows(tb, c->dtype, tokens, columns + v_columns, f->stride, 1);
    for (int64_t t = 0; t < tokens && !c->norm_qk; t++) /* of length 1, or S grows without end */
        for (int64_t i = 0; i < columns; i++) {
            const int64_t index = t * f->stride + i;
            tensor_set(&f->rows, index, tensor_get(&f->rows, index) * sqrt(3.0 / c->k_size));
        }
    tensor_upload(&f->rows);
    f->a = random_rows(tb, c->dtype, tokens, f->a_size, f->a_stride, 3);
    f->b = random_rows(tb, c->dtype, tokens, c->num_v_heads, f->b_stride, 3);
    make_params(f, tb);
    f->expected = malloc(sizeof(double) * (size_t)(tokens * v_columns + 1));
    expect_recurrence(f);
}

/* Of tokens from `first` on. */
static struct recurrence_args recurrence_arguments(const struct recurrence_fixture *f, struct tensor *out,
                                                   int64_t first)
{
    const struct recurrence_case *c = f->c;
    const int64_t start = first * f->stride, columns = (int64_t)c->num_k_heads * c->k_size;
    const bool delta = c->kind == RECURRENCE_DELTA || c->kind == RECURRENCE_DELTA_CHANNELS;
    return (struct recurrence_args){.out = (void *)(uintptr_t)at(out, first * c->num_v_heads * c->v_size),
                                    .q = at(&f->rows, start),
                                    .k = at(&f->rows, start + columns),
                                    .v = at(&f->rows, start + 2 * columns),
                                    .a = c->kind == RECURRENCE_FIXED ? NULL : at(&f->a, first * f->a_stride),
                                    .b = delta ? at(&f->b, first * f->b_stride) : NULL,
                                    .qkv_stride = f->stride,
                                    .a_stride = f->a_stride,
                                    .b_stride = f->b_stride,
                                    .states = f->batch.states.data,
                                    .state_stride = f->batch.stride,
                                    .batch = f->batch.args,
                                    .params = &f->params,
                                    .dtype = c->dtype};
}

static void describe(char *what, size_t size, const struct recurrence_case *c, const char *name)
{
    static const char *const kinds[] = {"delta", "delta of channels", "ssd", "fixed"};
    snprintf(what, size, "recurrence: %s, %s, heads %d/%d of %d and %d, %s", kinds[c->kind], name, c->num_k_heads,
             c->num_v_heads, c->k_size, c->v_size, dtype_name(c->dtype));
}

/* The same numbers on another backend: they are computed once. `from` must outlive the copy. */
static void recurrence_copy(struct recurrence_fixture *f, const struct recurrence_fixture *from,
                            const struct test_backend *tb)
{
    struct tensor *const tensors[] = {&f->rows, &f->a, &f->b, &f->a_log, &f->dt_bias, &f->skip};
    *f = *from;
    batch_copy(&f->batch, tb);
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) *tensors[i] = copy_of(tensors[i], tb->b);
    f->params.a_log = f->a_log.data;
    if (f->params.dt_bias) f->params.dt_bias = f->dt_bias.data;
    if (f->params.skip) f->params.skip = f->skip.data;
}

static void recurrence_free(struct recurrence_fixture *f, bool is_copy)
{
    if (!is_copy) free(f->expected);
    batch_free_on(&f->batch, is_copy);
    tensor_free(&f->rows), tensor_free(&f->a), tensor_free(&f->b);
    tensor_free(&f->a_log), tensor_free(&f->dt_bias), tensor_free(&f->skip);
}

static void compute_batch(const struct recurrence_fixture *f, struct tensor *out)
{
    const struct recurrence_args args = recurrence_arguments(f, out, 0);
    f->batch.tb->b->recurrence(f->batch.tb->b, &args);
}

/* Gives the backend a workspace with room for `num_chunks` chunks of a prompt's recurrence. */
static void use_chunk_workspace(struct test_backend *tb, const struct recurrence_case *c, int32_t num_chunks)
{
    const struct workspace_query query = {.max_num_tokens = 1,
                                          .max_num_seqs = num_chunks,
                                          .max_model_len = 64,
                                          .num_heads = 4,
                                          .head_size = 128,
                                          .block_size = 16,
                                          .max_in_features = 128,
                                          .vocab_size = 128,
                                          .num_recurrent_heads = c->num_v_heads,
                                          .recurrent_state_size = (int64_t)c->num_v_heads * c->v_size * c->k_size};
    if (tb->b->discrete) use_workspace(tb, &query);
}

/* Computes all tokens of a copy of the fixture on each backend with `compute`, and checks results and states. Chunks of
 * long prompts do not fit into the workspace together. */
static void check_on_backends(struct kernel_test *test, const struct recurrence_fixture *from,
                              void (*compute)(const struct recurrence_fixture *f, struct tensor *out))
{
    const struct recurrence_case *c = from->c;
    const int64_t count = (int64_t)from->batch.args.num_tokens * c->num_v_heads * c->v_size;
    char what[200];
    describe(what, sizeof what, c, from->batch.layout->name);
    for (int b = 0; b < test->num_backends; b++) {
        struct test_backend *tb = &test->backends[b];
        struct recurrence_fixture f;
        if (!tb->b->recurrence || !kernel_test_takes(tb)) continue;
        recurrence_copy(&f, from, tb);
        use_chunk_workspace(tb, c, 3);
        struct tensor out = tensor_poison(tb->b, c->dtype, count);
        compute(&f, &out);
        tensor_download(&out);
        check_close(tb, what, &out, f.expected, count, c->dtype);
        check_states(&f.batch, what, state_tolerance(tb, c->dtype));
        check_workspace(tb);
        tensor_free(&out);
        recurrence_free(&f, true);
    }
}

static void check_recurrence(struct kernel_test *test, const struct recurrence_case *c, const struct layout *layout)
{
    struct recurrence_fixture f;
    recurrence_make(&f, c, &test->backends[0], layout);
    check_on_backends(test, &f, compute_batch);
    recurrence_free(&f, false);
}

/* Small shapes: every kind beside every layout, type, and ratio of heads. */
static void recurrences(void **state)
{
    static const int32_t heads[][2] = {{1, 1}, {2, 2}, {1, 3}, {2, 4}}, sizes[][2] = {{16, 16}, {32, 48}, {48, 32}};
    for (int i = 0; i < 4 * NUM_LAYOUTS * 3; i++) {
        const struct recurrence_case c = {.kind = (enum recurrence_kind)(i % 4),
                                          .num_k_heads = heads[i / 3 % 4][0],
                                          .num_v_heads = heads[i / 3 % 4][1],
                                          .k_size = sizes[i / 5 % 3][0],
                                          .v_size = sizes[i / 5 % 3][1],
                                          .norm_qk = i / 7 % 2 == 0,
                                          .skip = i / 2 % 3 == 0,
                                          .dtype = types[i / (4 * NUM_LAYOUTS)]};
        check_recurrence(*state, &c, &layouts[i / 4 % NUM_LAYOUTS]);
    }
}

static const struct recurrence_case model_cases[] = {
    {RECURRENCE_DELTA, 2, 4, 128, 128, .norm_qk = true},
    {RECURRENCE_DELTA_CHANNELS, 3, 3, 128, 128, .norm_qk = true},
    {RECURRENCE_SSD, 1, 6, 128, 64, .skip = true},
    {RECURRENCE_SSD, 1, 3, 256, 64, .skip = true},
    {RECURRENCE_FIXED, 4, 4, 128, 128},
    {RECURRENCE_DELTA, 1, 1, 256, 256, .norm_qk = true},
    {RECURRENCE_DELTA, 4, 4, 64, 128, .norm_qk = true},
    {RECURRENCE_DELTA_CHANNELS, 1, 2, 256, 80, .norm_qk = true},
    {RECURRENCE_SSD, 2, 4, 16, 64, .skip = true},
};
enum { NUM_MODEL_CASES = sizeof model_cases / sizeof *model_cases };

/* Heads as large as those of models. */
static void recurrences_of_models(void **state)
{
    for (int i = 0; i < NUM_MODEL_CASES * 2; i++) {
        struct recurrence_case c = model_cases[i % NUM_MODEL_CASES];
        c.dtype = types[i % 3];
        check_recurrence(*state, &c, &layouts[i < NUM_MODEL_CASES ? NUM_LAYOUTS - 1 : 3 + i % 2]);
    }
}

static void many_heads(void **state)
{
    const struct recurrence_case c = {RECURRENCE_DELTA, 16, 32, 128, 128, .norm_qk = true, .dtype = DTYPE_BFLOAT16};
    check_recurrence(*state, &c, &layouts[2]);
}

/* Computes tokens [first, end) of the fixture's only sequence, whose state lies in slot 1 unless first is 0. */
static void run_chunk(const struct recurrence_fixture *f, struct tensor *out, int32_t first, int32_t end)
{
    struct backend *b = f->batch.tb->b;
    const int32_t starts[] = {0, end - first}, slot = 1, source = first > 0 ? slot : 0;
    struct tensor on[] = {tensor_bytes(b, starts, sizeof starts), tensor_bytes(b, &source, sizeof source),
                          tensor_bytes(b, &slot, sizeof slot)};
    struct recurrence_args args = recurrence_arguments(f, out, first);
    args.batch = (struct state_batch){.query_start = on[0].data,
                                      .sources = on[1].data,
                                      .slots = on[2].data,
                                      .num_seqs = 1,
                                      .num_decodes = end - first == 1,
                                      .num_tokens = end - first,
                                      .max_query_len = end - first,
                                      .max_run_len = 1};
    b->recurrence(b, &args);
    for (int i = 0; i < 3; i++) tensor_free(&on[i]);
}

static void compute_chunks(const struct recurrence_fixture *f, struct tensor *out)
{
    static const int32_t cuts[] = {0, 1, 8, 72, 200, 298, 299, 300};
    for (size_t i = 0; i + 1 < sizeof cuts / sizeof *cuts; i++) run_chunk(f, out, cuts[i], cuts[i + 1]);
}

/* A prompt that is cut into chunks, and then decodes, gives what it gives in one pass. */
static void chunks(void **state)
{
    static const struct layout prompt = {"a prompt in chunks", 1, {{300, 0, 1}}};
    for (int i = 0; i < 5; i++) {
        struct recurrence_case c = model_cases[i];
        struct recurrence_fixture f;
        c.num_k_heads = 1, c.num_v_heads = 2, c.dtype = types[i % 3];
        recurrence_make(&f, &c, &((struct kernel_test *)*state)->backends[0], &prompt);
        check_on_backends(*state, &f, compute_chunks);
        recurrence_free(&f, false);
    }
}

/* Prompts of many lengths in one batch, in as many rounds as the workspace makes of their chunks. */
static void prompts(void **state)
{
    struct kernel_test *test = *state;
    static const struct layout layout = {
        "prompts", 6, {{1, 2, 3}, {130, 0, 4}, {300, 5, 6}, {64, 7, 7}, {1, 0, 9}, {65, 8, 0}}};
    static const struct recurrence_case more[] = {{RECURRENCE_DELTA, 1, 3, 96, 192, .norm_qk = true},
                                                  {RECURRENCE_SSD, 1, 5, 64, 48},
                                                  {RECURRENCE_FIXED, 2, 2, 48, 64, .norm_qk = true, .skip = true}};
    for (int i = 0; i < NUM_MODEL_CASES + 3; i++) {
        struct recurrence_case c = i < NUM_MODEL_CASES ? model_cases[i] : more[i - NUM_MODEL_CASES];
        struct recurrence_fixture f;
        c.dtype = i % 4 == 3 ? DTYPE_FLOAT16 : DTYPE_BFLOAT16;
        if (c.num_v_heads % 3) c.num_v_heads = c.num_k_heads;
        recurrence_make(&f, &c, &test->backends[0], &layout);
        check_on_backends(test, &f, compute_batch);
        recurrence_free(&f, false);
    }
}

/* However many threads share the work. */
static void threads_do_not_matter(void **state)
{
    struct kernel_test *test = *state;
    const struct recurrence_case c = {RECURRENCE_DELTA_CHANNELS, 2, 4, 128, 128, .norm_qk = true};
    struct recurrence_fixture f;
    recurrence_make(&f, &c, &test->backends[0], &layouts[NUM_LAYOUTS - 1]);
    struct tensor out = tensor_poison(test->backends[0].b, c.dtype, f.batch.args.num_tokens * 4 * 128);
    uint8_t *first = malloc((size_t)(out.bytes + f.batch.states.bytes));
    for (int threads = 1; threads <= 3; threads++) {
        struct backend *b;
        struct error err;
        assert_int_equal(backend_open("cpu", threads, &b, &err), STATUS_OK);
        const struct recurrence_args args = recurrence_arguments(&f, &out, 0);
        memcpy(f.batch.states.data, f.batch.states.host, (size_t)f.batch.states.bytes);
        b->recurrence(b, &args);
        if (threads == 1) {
            memcpy(first, out.data, (size_t)out.bytes);
            memcpy(first + out.bytes, f.batch.states.data, (size_t)f.batch.states.bytes);
        }
        assert_memory_equal(first, out.data, (size_t)out.bytes);
        assert_memory_equal(first + out.bytes, f.batch.states.data, (size_t)f.batch.states.bytes);
        b->destroy(b);
    }
    free(first);
    tensor_free(&out);
    recurrence_free(&f, false);
}

/* ---- gated_norm ---- */

struct norm_case {
    int32_t size, group_size, gain_size; /* gain_size 0: no norm */
    bool gate_first, sigmoid, round_norm, in_place;
    enum dtype dtype, gain_dtype;
};

enum { NORM_TOKENS = 5 };

static void expect_norm(const struct norm_case *c, double *out, const struct tensor *x, const struct tensor *gate,
                        int64_t stride, const struct tensor *gain)
{
    for (int64_t first = 0; first < (int64_t)NORM_TOKENS * c->size; first += c->group_size) {
        double sum = 0;
        for (int64_t i = first; i < first + c->group_size; i++) {
            const double g = tensor_get(gate, i / c->size * stride + i % c->size);
            out[i] = tensor_get(x, i) * (c->gate_first ? (c->sigmoid ? 1 : g) * sigmoid(g) : 1);
            sum += out[i] * out[i];
        }
        for (int64_t i = first; i < first + c->group_size; i++) {
            const double g = tensor_get(gate, i / c->size * stride + i % c->size);
            if (c->gain_size) out[i] /= sqrt(sum / c->group_size + 1e-5);
            if (c->gain_size) out[i] *= tensor_get(gain, i % c->size % c->gain_size);
            if (c->gain_size && c->round_norm) out[i] = rounded(c->dtype, out[i]);
            if (!c->gate_first) out[i] *= (c->sigmoid ? 1 : g) * sigmoid(g);
            if (c->round_norm) out[i] = rounded(c->dtype, out[i]);
        }
    }
}

/* Where bfloat16 is rounded at the same places, few elements differ (by the exponential of the
 * machine's library): another rounding would show, as 1e-3 and more. */
static double norm_tolerance(const struct norm_case *c)
{
    if (c->dtype == DTYPE_FLOAT32) return 1e-5;
    return c->round_norm && c->dtype == DTYPE_BFLOAT16 ? 6e-4 : 1e-2;
}

static void check_gated_norm(const struct test_backend *tb, const struct norm_case *c)
{
    char what[160];
    const int64_t count = (int64_t)NORM_TOKENS * c->size, stride = c->size + 24;
    struct tensor x = tensor_random(tb->b, c->dtype, count, 2, tb->random);
    struct tensor gate = random_rows(tb, c->dtype, NORM_TOKENS, c->size, stride, 8);
    struct tensor gain = tensor_random(tb->b, c->gain_dtype, c->gain_size ? c->gain_size : 1, 2, tb->random);
    struct tensor out = tensor_poison(tb->b, c->dtype, count);
    double *expected = malloc(sizeof(double) * (size_t)count);
    expect_norm(c, expected, &x, &gate, stride, &gain);
    const struct gated_norm_args args = {.out = c->in_place ? x.data : out.data,
                                         .x = x.data,
                                         .gate = gate.data,
                                         .gate_stride = stride,
                                         .gain = c->gain_size ? gain.data : NULL,
                                         .gain_dtype = c->gain_dtype,
                                         .gain_size = c->gain_size,
                                         .group_size = c->gain_size ? c->group_size : 0,
                                         .eps = 1e-5f,
                                         .gate_first = c->gate_first,
                                         .sigmoid = c->sigmoid,
                                         .round_norm = c->round_norm,
                                         .num_tokens = NORM_TOKENS,
                                         .size = c->size,
                                         .dtype = c->dtype};
    tb->b->gated_norm(tb->b, &args);
    struct tensor *result = c->in_place ? &x : &out;
    tensor_download(result);
    snprintf(what, sizeof what, "gated_norm: %d in groups of %d, %s, gains %d of %s%s%s", c->size, c->group_size,
             dtype_name(c->dtype), c->gain_size, dtype_name(c->gain_dtype), c->gate_first ? ", gate first" : "",
             c->sigmoid ? ", sigmoid" : "");
    check_within(tb, what, result, expected, count, norm_tolerance(c));
    free(expected);
    tensor_free(&x), tensor_free(&gate), tensor_free(&gain), tensor_free(&out);
}

/* The last sizes are nothing new for a CPU. */
static void gated_norms(void **state)
{
    struct kernel_test *test = *state;
    static const int32_t sizes[][3] = {{512, 128, 128},       {2048, 2048, 2048}, {4096, 128, 128},
                                       {1536, 512, 1536},     {48, 16, 16},       {1200, 1200, 1200},
                                       {4096, 4096, 0},       {3072, 3072, 3072}, {10240, 10240, 10240},
                                       {40960, 20480, 20480}, {110592, 512, 512}};
    enum { NUM_SIZES = sizeof sizes / sizeof *sizes };
    for (int b = 0; b < test->num_backends; b++)
        for (int i = 0; i < 12 * NUM_SIZES; i++) {
            struct test_backend *tb = &test->backends[b];
            const int32_t *size = sizes[i % NUM_SIZES];
            const struct norm_case c = {.size = size[0],
                                        .group_size = size[1],
                                        .gain_size = size[2],
                                        .gate_first = i / 2 % 2 == 0,
                                        .sigmoid = i / 4 % 2 == 0,
                                        .round_norm = i % 5 == 0,
                                        .in_place = i % 2 == 0,
                                        .dtype = types[i / NUM_SIZES % 3],
                                        .gain_dtype = i % 3 == 0 ? DTYPE_FLOAT32 : types[i / NUM_SIZES % 3]};
            if (c.size > 8192 && !tb->b->discrete) continue;
            if (tb->b->gated_norm && kernel_test_takes(tb)) check_gated_norm(tb, &c);
        }
}

/* ---- decode_recurrence ---- */

struct fused_case {
    struct recurrence_case recurrence;
    bool value_first;              /* the channels are v, k, q */
    int32_t group_size, gain_size; /* of the norm; gain_size 0: none */
    bool gate_first, sigmoid, round_norm;
};

/* The operands of decode_recurrence, and those of what is computed again by the operations that it replaces. */
struct fused_fixture {
    const struct fused_case *c;
    struct batch_on conv, matrix; /* the states of both */
    struct recurrence_fixture recurrence;
    struct tensor rows, weight, bias, gain, mixed, out;
    int64_t stride, k_columns, v_columns, channels;
};

static void fused_make(struct fused_fixture *f, const struct fused_case *c, const struct test_backend *tb,
                       const struct layout *layout)
{
    const struct recurrence_case *r = &c->recurrence;
    *f = (struct fused_fixture){.c = c};
    f->k_columns = (int64_t)r->num_k_heads * r->k_size, f->v_columns = (int64_t)r->num_v_heads * r->v_size;
    f->channels = 2 * f->k_columns + f->v_columns;
    f->stride = f->channels + f->v_columns + 16;
    batch_make(&f->conv, tb, layout, f->channels * 3, r->dtype);
    recurrence_make(&f->recurrence, r, tb, layout);
    const int64_t tokens = f->conv.args.num_tokens;
    f->rows = random_rows(tb, r->dtype, tokens, f->channels + f->v_columns, f->stride, 2);
    f->weight = tensor_random(tb->b, DTYPE_FLOAT32, f->channels * 4, 1, tb->random);
    f->bias = tensor_random(tb->b, DTYPE_FLOAT32, f->channels, 1, tb->random);
    f->gain = tensor_random(tb->b, DTYPE_FLOAT32, f->v_columns, 1, tb->random);
    f->mixed = tensor_poison(tb->b, r->dtype, tokens * f->channels);
    f->out = tensor_poison(tb->b, r->dtype, tokens * f->v_columns);
}

static struct decode_recurrence_args fused_arguments(struct fused_fixture *f)
{
    const struct fused_case *c = f->c;
    const struct recurrence_case *r = &c->recurrence;
    struct decode_recurrence_args args = {.recurrence = recurrence_arguments(&f->recurrence, &f->out, 0)};
    args.conv = (struct short_conv_args){.out = f->mixed.data,
                                         .x = f->rows.data,
                                         .x_stride = f->stride,
                                         .weight = f->weight.data,
                                         .bias = r->skip ? f->bias.data : NULL,
                                         .silu = true,
                                         .channels = (int32_t)f->channels,
                                         .width = 4,
                                         .states = f->conv.states.data,
                                         .state_stride = f->conv.stride,
                                         .batch = f->conv.args,
                                         .dtype = r->dtype};
    args.recurrence.k = at(&f->mixed, c->value_first ? f->v_columns : f->k_columns);
    args.recurrence.q = at(&f->mixed, c->value_first ? f->v_columns + f->k_columns : 0);
    args.recurrence.v = at(&f->mixed, c->value_first ? 0 : 2 * f->k_columns);
    args.recurrence.qkv_stride = f->channels;
    args.norm = (struct gated_norm_args){.out = f->out.data,
                                         .x = f->out.data,
                                         .gate = at(&f->rows, f->channels),
                                         .gate_stride = f->stride,
                                         .gain = c->gain_size ? f->gain.data : NULL,
                                         .gain_dtype = DTYPE_FLOAT32,
                                         .gain_size = c->gain_size,
                                         .group_size = c->group_size,
                                         .eps = 1e-5f,
                                         .gate_first = c->gate_first,
                                         .sigmoid = c->sigmoid,
                                         .round_norm = c->round_norm,
                                         .num_tokens = f->conv.args.num_tokens,
                                         .size = (int32_t)f->v_columns,
                                         .dtype = r->dtype};
    return args;
}

/* What two runs left in a tensor, `other` and its host's copy: NaN in the same places, and the same numbers. */
static void check_same(const struct test_backend *tb, const char *what, const struct tensor *t, const uint8_t *other,
                       double tolerance)
{
    struct tensor view = *t;
    double difference = 0, norm = 0;
    view.host = (uint8_t *)(uintptr_t)other;
    for (int64_t i = 0; i < t->count; i++) {
        const double x = tensor_get(t, i), y = tensor_get(&view, i);
        if (isnan(x) && isnan(y)) continue;
        difference += (x - y) * (x - y), norm += y * y;
    }
    if (!(sqrt(difference) <= tolerance * sqrt(norm)))
        fail_msg("%s: %s: the relative difference is %g", tb->name, what, sqrt(difference / norm));
}

static uint8_t *copy_of_host(const struct tensor *t)
{
    uint8_t *copy = malloc((size_t)t->bytes + 1);
    memcpy(copy, t->host, (size_t)t->bytes);
    return copy;
}

static void check_fused(struct test_backend *tb, const struct fused_case *c, const struct layout *layout)
{
    struct fused_fixture f;
    char what[200], whole[240];
    const enum dtype dtype = c->recurrence.dtype;
    fused_make(&f, c, tb, layout);
    describe(what, sizeof what, &c->recurrence, layout->name);
    struct decode_recurrence_args args = fused_arguments(&f);
    struct tensor *results[] = {&f.conv.states, &f.recurrence.batch.states, &f.out};
    uint8_t *fused[3];
    for (int i = 0; i < 3; i++) fused[i] = copy_of_host(results[i]); /* what they hold before */
    if (!tb->b->decode_recurrence(tb->b, &args)) fail_msg("%s: decode_recurrence does not take %s", tb->name, what);
    for (int i = 0; i < 3; i++) {
        uint8_t *before = fused[i];
        tensor_download(results[i]);
        fused[i] = copy_of_host(results[i]);
        memcpy(results[i]->host, before, (size_t)results[i]->bytes);
        tensor_upload(results[i]);
        free(before);
    }
    tb->b->short_conv(tb->b, &args.conv);
    tb->b->recurrence(tb->b, &args.recurrence);
    tb->b->gated_norm(tb->b, &args.norm);
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"states of the convolution", "states", "results"};
        tensor_download(results[i]);
        snprintf(whole, sizeof whole, "decode_recurrence: %s: %s", names[i], what);
        check_same(tb, whole, results[i], fused[i], dtype == DTYPE_FLOAT32 || i < 2 ? 1e-5 : 1e-2);
        free(fused[i]);
    }
    batch_free_on(&f.conv, false);
    recurrence_free(&f.recurrence, false);
    tensor_free(&f.rows), tensor_free(&f.weight), tensor_free(&f.bias), tensor_free(&f.gain);
    tensor_free(&f.mixed), tensor_free(&f.out);
}

/* A backend that has the fused operation takes these shapes. */
static void decode_recurrences(void **state)
{
    struct kernel_test *test = *state;
    static const struct fused_case cases[] = {
        {{RECURRENCE_DELTA, 2, 4, 128, 128, .norm_qk = true}, false, 128, 128, .round_norm = true},
        {{RECURRENCE_DELTA_CHANNELS, 3, 3, 128, 128, .norm_qk = true}, false, 128, 128, .sigmoid = true},
        {{RECURRENCE_SSD, 1, 6, 128, 64, .skip = true}, true, 384, 384, .gate_first = true},
        {{RECURRENCE_SSD, 2, 6, 128, 64, .skip = true}, true, 64, 384, .gate_first = true},
        {{RECURRENCE_SSD, 1, 3, 256, 64, .skip = true}, true, 192, 0},
        {{RECURRENCE_FIXED, 4, 4, 128, 128}, false, 128, 128, .sigmoid = true},
        {{RECURRENCE_DELTA, 2, 2, 64, 128, .norm_qk = true}, false, 128, 128},
        {{RECURRENCE_DELTA, 1, 4, 48, 32, .norm_qk = true}, false, 32, 128},
    };
    static const int decodes[] = {0, 2, 3, 4};
    const struct workspace_query query = {.max_num_tokens = 64,
                                          .max_num_seqs = MAX_ENTRIES,
                                          .max_model_len = 64,
                                          .num_heads = 4,
                                          .head_size = 128,
                                          .block_size = 16,
                                          .max_in_features = 128,
                                          .vocab_size = 128};
    for (int b = 0; b < test->num_backends; b++) {
        struct test_backend *tb = &test->backends[b];
        if (!tb->b->decode_recurrence) continue;
        use_workspace(tb, &query);
        for (int i = 0; i < 96; i++) {
            struct fused_case c = cases[i % 8];
            c.recurrence.dtype = types[i / 8 % 3];
            check_fused(tb, &c, &layouts[decodes[i / 24]]);
        }
        check_workspace(tb);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_convs),
        cmocka_unit_test(short_convs_of_models),
        cmocka_unit_test(recurrences),
        cmocka_unit_test(recurrences_of_models),
        cmocka_unit_test(many_heads),
        cmocka_unit_test(chunks),
        cmocka_unit_test(prompts),
        cmocka_unit_test(gated_norms),
        cmocka_unit_test(decode_recurrences),
        cmocka_unit_test(threads_do_not_matter),
    };
    cmocka_set_test_filter(getenv("QUIRE_TEST_FILTER"));
    return cmocka_run_group_tests(tests, kernel_test_setup, kernel_test_teardown);
}
