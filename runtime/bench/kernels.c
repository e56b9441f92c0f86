#include "runtime/bench/kernels.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/processors.h"
#include "base/clock.h"
#include "kernels/gpu_list.h"
#include "kernels/ranks.h"
#include "model/quantization.h"
#include "model/weight_parts.h"
#include "runtime/bench/bench.h"
#include "runtime/engine/loaded_model.h"
#include "runtime/options/engine_flags.h"
#include "runtime/options/model_folder.h"

struct kernels_options {
    const char *model, *device, *dtype, *quantization, *kv_cache_dtype, *filter;
    int32_t block_size;
    int32_t num_ranks;
    int threads;
    const char *cpu_isa;
    bool json;
};

/* ---- shapes ---- */

/* Without --model: Llama-3.2-1B. */
static void use_llama_1b(struct model_spec *spec)
{
    *spec = (struct model_spec){
        .hidden_size = 2048, .num_layers = 16, .vocab_size = 128256, .num_schemes = 1, .names = tensor_names_llama};
    for (int32_t i = 0; i < spec->num_layers; i++)
        spec->layers[i] = (struct layer_spec){.attention = {.num_heads = 32, .num_kv_heads = 8, .head_size = 64},
                                              .mlp = {.intermediate_size = 8192}};
}

static struct bench_quantization quantization_of(const struct weight_scheme *s)
{
    const struct tensor matrix = {.scheme = *s};
    const struct weight w = weight_of_tensor(&matrix, DTYPE_FLOAT32);
    if (!s->is_quantized) return (struct bench_quantization){WEIGHT_FLOAT32};
    return (struct bench_quantization){.format = w.format,
                                       .scale_dtype = w.scale_dtype,
                                       .scale_rows = (int32_t)w.scale_rows,
                                       .group_size = s->group_size,
                                       .has_zeros = s->has_zeros,
                                       .quantize_x = w.quantize_x};
}

/* Or the first layer, if none has any. */
static const struct layer_spec *first_with_experts(const struct model_spec *c)
{
    for (int32_t i = 0; i < c->num_layers; i++)
        if (c->layers[i].experts.router.num_experts > 0) return &c->layers[i];
    return &c->layers[0];
}

/* The recurrence of the first layer that has one, with its convolution and its norm; without heads if none has. */
static struct recurrence_params first_recurrence(const struct model_spec *c, int32_t *conv_width,
                                                 struct gated_norm_args *norm)
{
    int32_t i = 0;
    while (i < c->num_layers && !layer_is_recurrent(&c->layers[i])) i++;
    if (i == c->num_layers) return (struct recurrence_params){0};
    const struct recurrent_spec *r = &c->layers[i].recurrent;
    *conv_width = r->conv_width;
    *norm = (struct gated_norm_args){.gain_size = r->no_norm ? 0 : r->norm_size,
                                     .group_size = r->norm_group_size,
                                     .eps = (float)r->norm_eps,
                                     .gate_first = r->gate_first,
                                     .sigmoid = r->sigmoid_gate,
                                     .round_norm = r->round_norm};
    return (struct recurrence_params){.kind = r->kind,
                                      .num_k_heads = r->num_k_heads,
                                      .num_v_heads = r->num_v_heads,
                                      .k_size = r->k_head_size,
                                      .v_size = r->v_head_size,
                                      .scale = r->scale,
                                      .beta_factor = r->beta_factor,
                                      .beta_min = r->beta_min,
                                      .beta_max = r->beta_max,
                                      .norm_qk = r->norm_qk};
}

/* The first layer with latent attention; one of no heads if there is none. */
static struct latent_spec first_latent(const struct model_spec *c)
{
    for (int32_t i = 0; i < c->num_layers; i++)
        if (c->layers[i].mixer == MIXER_LATENT) return c->layers[i].latent;
    return (struct latent_spec){0};
}

struct bench_sizes bench_sizes_of(const struct model_spec *c)
{
    int32_t conv_width = 0;
    struct gated_norm_args norm = {0};
    const struct recurrence_params recurrence = first_recurrence(c, &conv_width, &norm);
    const struct layer_sizes largest = model_spec_largest(c);
    const struct layer_spec *experts = first_with_experts(c);
    const struct latent_spec latent = first_latent(c);
    return (struct bench_sizes){.hidden_size = c->hidden_size,
                                .intermediate_size = largest.intermediate_size,
                                .num_layers = c->num_layers,
                                .num_heads = largest.num_heads,
                                .num_kv_heads = largest.num_kv_heads,
                                .head_size = largest.head_size,
                                .vocab_size = c->vocab_size,
                                .quantization = quantization_of(&c->schemes[c->layers[0].schemes[TENSOR_Q]]),
                                .router = experts->experts.router,
                                .expert_size = experts->experts.intermediate_size,
                                .expert_width = experts_width(&experts->experts, c->hidden_size),
                                .expert_gate = experts->experts.gate,
                                .expert_quantization =
                                    quantization_of(&c->schemes[experts->schemes[TENSOR_EXPERT_DOWN]]),
                                .recurrence = recurrence,
                                .conv_width = conv_width,
                                .gated_norm = norm,
                                .latent_heads = latent.num_heads,
                                .latent_rank = latent.rank,
                                .latent_rope = latent.rope,
                                .latent_nope = latent.nope};
}

/* The largest of the merged matrices that begin with this role; NULL: no layer has one. */
static const struct tensor *largest_matrix(const struct tensor_table *table, enum tensor_role role)
{
    const struct tensor *largest = NULL;
    for (int32_t i = 0; i < table->count; i++) {
        const struct tensor *t = &table->tensors[i];
        if (t->kind != TENSOR_MATRIX || t->role != role) continue;
        if (!largest || t->merged_rows * t->in_features > largest->merged_rows * largest->in_features) largest = t;
    }
    return largest;
}

/* Where no layer has another MLP, the experts of a token count as one. */
static void add_active_experts(const struct model_spec *spec, struct bench_matmuls *out)
{
    const struct layer_sizes s = model_spec_largest(spec);
    const int64_t size = (int64_t)s.top_k * s.expert_size;
    out->out_features[MATMUL_GATE_UP] = 2 * size;
    out->in_features[MATMUL_GATE_UP] = out->out_features[MATMUL_DOWN] = spec->hidden_size;
    out->in_features[MATMUL_DOWN] = size;
}

enum status bench_matmuls_of(const struct model_spec *spec, struct bench_matmuls *out, struct error *err)
{
    static const enum tensor_role first_parts[NUM_MATMULS] = {[MATMUL_QKV] = TENSOR_Q,
                                                              [MATMUL_O] = TENSOR_O,
                                                              [MATMUL_GATE_UP] = TENSOR_GATE,
                                                              [MATMUL_DOWN] = TENSOR_DOWN,
                                                              [MATMUL_LM_HEAD] = TENSOR_LM_HEAD};
    struct tensor_table table;
    *out = (struct bench_matmuls){{0}};
    enum status status = tensor_table_make(spec, false, &table, err);
    for (int i = 0; i < NUM_MATMULS && status == STATUS_OK; i++) {
        const struct tensor *t = largest_matrix(&table, first_parts[i]);
        if (!t) t = largest_matrix(&table, TENSOR_UP); /* of MLPs without a gate */
        if (!t) continue;
        out->out_features[i] = t->merged_rows;
        out->in_features[i] = t->in_features;
    }
    if (status == STATUS_OK && out->out_features[MATMUL_DOWN] == 0) add_active_experts(spec, out);
    tensor_table_free(&table);
    return status;
}

static struct bench_case matmul_case(const struct bench_matmuls *matmuls, int matmul, int32_t num_tokens)
{
    return (struct bench_case){.operation = BENCH_LINEAR,
                               .count = num_tokens,
                               .out_features = matmuls->out_features[matmul],
                               .in_features = matmuls->in_features[matmul]};
}

enum status bench_matmul_speed(struct backend *b, const struct bench_sizes *s, const struct bench_matmuls *matmuls,
                               int32_t num_tokens, double *flops, struct error *err)
{
    enum { OF_A_LAYER = MATMUL_LM_HEAD };
    struct bench_case cases[OF_A_LAYER];
    struct bench_device *d;
    for (int i = 0; i < OF_A_LAYER; i++) cases[i] = matmul_case(matmuls, i, num_tokens);
    enum status status = bench_device_open(b, s, cases, OF_A_LAYER, &d, err);
    *flops = 0;
    for (int i = 0; i < OF_A_LAYER && status == STATUS_OK; i++) {
        struct bench_time time;
        status = bench_device_run(d, &cases[i], &time, err);
        if (status == STATUS_OK && time.operations / time.seconds > *flops) *flops = time.operations / time.seconds;
    }
    bench_device_close(d);
    return status;
}

/* ---- the cases ---- */

enum { MAX_CASES = 224, MAX_SHAPE = 80, MAX_MORE = 64, CONTEXT = 576, PROMPT = 2048 };

struct row {
    struct bench_case c;
    char shape[MAX_SHAPE];
    struct bench_time time;
};

struct rows {
    struct row row[MAX_CASES];
    int count;
    const char *filter;
};

static void describe(const struct bench_case *c, char *shape)
{
    char more[MAX_MORE] = "";
    const char *what = "token";
    const int32_t run_len = c->run_len > 0 ? c->run_len : 1;
    int32_t count = c->count;
    if (c->out_features > 0) {
        snprintf(more, sizeof more, ", %lldx%lld%s", (long long)c->out_features, (long long)c->in_features,
                 c->same_experts ? ", same experts" : "");
    } else if (c->context > 0) {
        what = "sequence";
        count /= run_len;
        if (run_len == 1)
            snprintf(more, sizeof more, " of %d tokens", c->context);
        else
            snprintf(more, sizeof more, " of %d tokens, runs of %d", c->context, run_len);
    } else if (c->operation == BENCH_SHORT_CONV || c->operation == BENCH_RECURRENCE ||
               c->operation == BENCH_DECODE_RECURRENCE) {
        what = c->prompt ? "token" : "sequence";
    } else if (c->operation == BENCH_SAMPLE) {
        what = "sequence";
        snprintf(more, sizeof more, ", %s", c->top_p ? "top-p" : "greedy");
    } else if (c->operation == BENCH_COPY_BLOCKS) {
        what = "block";
    } else if (c->operation == BENCH_SWAP_BLOCKS) {
        what = "block";
        snprintf(more, sizeof more, ", %s", c->swap_in ? "in" : "out");
    }
    snprintf(shape, MAX_SHAPE, "%d %s%s%s", count, what, plural(count), more);
}

static void add_case(struct rows *rows, struct bench_case c)
{
    struct row row = {.c = c};
    char whole[2 * MAX_SHAPE];
    describe(&c, row.shape);
    snprintf(whole, sizeof whole, "%s %s", bench_operation_name(c.operation), row.shape);
    if (rows->count < MAX_CASES && (!rows->filter || strstr(whole, rows->filter))) rows->row[rows->count++] = row;
}

static void add_linear(struct rows *rows, const struct bench_matmuls *matmuls)
{
    static const int32_t counts[] = {1, 8, 16, 64, 512};
    for (int matmul = 0; matmul < NUM_MATMULS; matmul++)
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
            add_case(rows, matmul_case(matmuls, matmul, counts[i]));
}

/* The operations that pass over the activations: of one token, of a batch and of a prompt. */
static void add_passes(struct rows *rows)
{
    static const enum bench_operation operations[] = {BENCH_RMS_NORM, BENCH_FUSED_ADD_RMS_NORM, BENCH_ROTARY_EMBEDDING,
                                                      BENCH_RESHAPE_AND_CACHE, BENCH_ACT_AND_MUL};
    static const int32_t counts[] = {1, 256, PROMPT};
    for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++)
        for (size_t j = 0; j < sizeof counts / sizeof counts[0]; j++)
            add_case(rows, (struct bench_case){.operation = operations[i], .count = counts[j]});
}

/* One after the other for each number of tokens, so that they can be compared. */
static void add_ranks(struct rows *rows)
{
    static const enum bench_operation operations[] = {BENCH_ALL_REDUCE, BENCH_NCCL_ALL_REDUCE,
                                                      BENCH_ALL_REDUCE_ADD_NORM};
    static const int32_t counts[] = {1, 8, 32, 256, PROMPT};
    for (size_t j = 0; j < sizeof counts / sizeof counts[0]; j++)
        for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++)
            add_case(rows, (struct bench_case){.operation = operations[i], .count = counts[j]});
}

/* The fused operations of a decode step with few tokens. A shape that the backend does not fuse gets no row. */
static void add_fused(struct rows *rows, const struct bench_matmuls *matmuls)
{
    static const enum bench_operation operations[NUM_MATMULS] = {[MATMUL_QKV] = BENCH_NORM_LINEAR,
                                                                 [MATMUL_O] = BENCH_LINEAR_RESIDUAL,
                                                                 [MATMUL_GATE_UP] = BENCH_GATE_UP,
                                                                 [MATMUL_DOWN] = BENCH_LINEAR_RESIDUAL,
                                                                 [MATMUL_LM_HEAD] = BENCH_NORM_LINEAR};
    static const int32_t counts[] = {1, 8, 64};
    for (int matmul = 0; matmul < NUM_MATMULS; matmul++)
        for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
            struct bench_case c = matmul_case(matmuls, matmul, counts[i]);
            c.operation = operations[matmul];
            add_case(rows, c);
        }
}

static void add_attention(struct rows *rows, enum bench_operation operation)
{
    static const int32_t sequences[] = {1, 8, 32, 256};
    for (size_t i = 0; i < sizeof sequences / sizeof sequences[0]; i++)
        add_case(rows, (struct bench_case){operation, .count = sequences[i], .context = CONTEXT});
    for (size_t i = 0; i < 3; i++)
        add_case(rows, (struct bench_case){operation, .count = 4 * sequences[i], .context = CONTEXT, .run_len = 4});
}

/* Runs in contexts so long that K and V do not stay in a GPU's caches. A CPU would take seconds for each. */
static void add_long_runs(struct rows *rows, enum bench_operation operation)
{
    static const int32_t sequences[] = {1, 8}, contexts[] = {512, 4096, 32768, 100000}, runs[] = {1, 2, 4, 8};
    for (int s = 0; s < 2; s++)
        for (int c = 0; c < 4; c++)
            for (int r = 0; r < 4; r++)
                add_case(rows, (struct bench_case){operation, .count = sequences[s] * runs[r], .context = contexts[c],
                                                   .run_len = runs[r]});
}

/* Tokens go to experts evenly, or, in the last row, all to the same. A CPU would take seconds for the largest count. */
static void add_experts(struct rows *rows, const struct bench_sizes *s, bool discrete)
{
    static const int32_t counts[] = {1, 4, 8, 32, 128, 512, PROMPT, 4 * PROMPT};
    const int num_counts = (int)(sizeof counts / sizeof counts[0]) - !discrete;
    const int64_t gate_up_features = (int64_t)gate_operands(&s->expert_gate) * s->expert_size;
    const struct bench_case cases[] = {
        {BENCH_ROUTE_EXPERTS},
        {BENCH_EXPERTS_GATE_UP, .out_features = gate_up_features, .in_features = s->expert_width},
        {BENCH_EXPERTS_DOWN, .out_features = s->expert_width, .in_features = s->expert_size}};
    if (s->router.num_experts == 0) return;
    for (int i = 0; i < 3; i++) {
        struct bench_case c = cases[i];
        for (int j = 0; j < num_counts; j++) {
            c.count = counts[j];
            add_case(rows, c);
        }
        c.count = 512;
        c.same_experts = true;
        if (c.out_features > 0) add_case(rows, c);
    }
}

/* A CPU computes prompts token by token: it has no prompts of other lengths. */
static void add_recurrences(struct rows *rows, const struct bench_sizes *s, bool discrete)
{
    static const int32_t sequences[] = {1, 8, 32, 128, 256}, lengths[] = {1, 16, 64, 256, 512, 1024, 4096, 8192, 32768};
    static const enum bench_operation operations[] = {BENCH_SHORT_CONV, BENCH_RECURRENCE, BENCH_DECODE_RECURRENCE};
    for (int i = 0; i < 3 && s->recurrence.num_v_heads > 0; i++) {
        for (size_t j = 0; j < sizeof sequences / sizeof sequences[0]; j++)
            add_case(rows, (struct bench_case){operations[i], .count = sequences[j]});
        if (operations[i] != BENCH_DECODE_RECURRENCE)
            add_case(rows, (struct bench_case){operations[i], .count = PROMPT, .prompt = true});
    }
    for (size_t j = 0; j < sizeof lengths / sizeof lengths[0] && discrete && s->recurrence.num_v_heads > 0; j++)
        add_case(rows, (struct bench_case){BENCH_RECURRENCE, .count = lengths[j], .prompt = true});
}

/* Decodes; with long contexts, and runs, where they would not take a CPU seconds. */
static void add_latents(struct rows *rows, const struct bench_sizes *s, bool discrete)
{
    static const int32_t sequences[] = {1, 8, 32, 128}, contexts[] = {CONTEXT, 4096, 32768, 100000};
    if (s->latent_heads == 0) return;
    for (int i = 0; i < 4; i++) add_case(rows, (struct bench_case){BENCH_HEADS_LINEAR, .count = sequences[i]});
    add_case(rows, (struct bench_case){BENCH_HEADS_LINEAR, .count = PROMPT});
    for (int c = 0; c < (discrete ? 4 : 1); c++)
        for (int i = 0; i < 4; i++)
            add_case(rows, (struct bench_case){BENCH_LATENT_ATTENTION, .count = sequences[i], .context = contexts[c]});
    for (int c = 0; c < 4 && discrete; c++)
        add_case(rows, (struct bench_case){BENCH_LATENT_ATTENTION, .count = 8, .context = contexts[c], .run_len = 8});
    add_case(rows, (struct bench_case){BENCH_LATENT_ATTENTION_PREFILL, .count = PROMPT});
    if (discrete) add_case(rows, (struct bench_case){BENCH_LATENT_ATTENTION_PREFILL, .count = 16 * PROMPT});
}

static void add_attentions(struct rows *rows, bool discrete)
{
    add_attention(rows, BENCH_PAGED_ATTENTION);
    add_attention(rows, BENCH_DECODE_ATTENTION);
    if (discrete) add_long_runs(rows, BENCH_DECODE_ATTENTION);
    add_case(rows, (struct bench_case){BENCH_PAGED_ATTENTION_PREFILL, .count = PROMPT});
}

/* What the device can do at most: a kernel takes at least bytes / memory, link_bytes / link and operations / matmuls
 * seconds. */
struct limits {
    double memory, link; /* bytes a second; link 0: no kernel uses it */
    double matmuls;      /* floating-point operations a second; 0: no kernel multiplies matrices */
};

struct measurement {
    struct backend *ranks[COLLECTIVE_MAX_RANKS];
    int32_t num_ranks; /* that are open */
    struct bench_sizes sizes;
    struct bench_matmuls matmuls;
    struct quantization_words quantization;
    struct rows rows;
    struct limits limits;
    double seconds; /* that it all took */
};

static void add_all(struct measurement *m)
{
    struct rows *rows = &m->rows;
    const struct bench_matmuls *matmuls = &m->matmuls;
    const struct bench_sizes *s = &m->sizes;
    const bool discrete = m->ranks[0]->discrete;
    if (m->num_ranks > 1) add_ranks(rows);
    add_linear(rows, matmuls);
    add_fused(rows, matmuls);
    add_experts(rows, s, discrete);
    add_recurrences(rows, s, discrete);
    add_latents(rows, s, discrete);
    add_passes(rows);
    if (s->latent_heads == 0) add_attentions(rows, discrete);
    add_case(rows, (struct bench_case){BENCH_COPY_BLOCKS, .count = 1});
    add_case(rows, (struct bench_case){BENCH_COPY_BLOCKS, .count = 32});
    add_case(rows, (struct bench_case){BENCH_SWAP_BLOCKS, .count = 32});
    add_case(rows, (struct bench_case){BENCH_SWAP_BLOCKS, .count = 32, .swap_in = true});
    for (int top_p = 0; top_p <= 1; top_p++) {
        add_case(rows, (struct bench_case){BENCH_SAMPLE, .count = 1, .top_p = top_p});
        add_case(rows, (struct bench_case){BENCH_SAMPLE, .count = 256, .top_p = top_p});
    }
}

/* ---- measuring ---- */

/* Called before and after the kernels. The better result counts, because the machine may be busy during one of them. */
static enum status measure_memory(struct measurement *m, int threads, struct bench_device *d, struct error *err)
{
    struct bench_read read = {0};
    double memory = 0, link = 0;
    enum status status;
    if (m->ranks[0]->discrete) {
        status = bench_device_copy(d, &memory, err);
        if (status == STATUS_OK) status = bench_device_link(d, &link, err);
    } else {
        status = bench_host_read(threads, &read, err);
        memory = read.bytes_per_second;
    }
    if (status != STATUS_OK) return status;
    m->limits.memory = fmax(m->limits.memory, memory);
    m->limits.link = fmax(m->limits.link, link);
    return STATUS_OK;
}

static void note_matmul(struct limits *limits, const struct bench_time *time)
{
    const double speed = time->operations / time->seconds;
    if (speed > limits->matmuls) limits->matmuls = speed;
}

static bool has_matmuls(const struct rows *rows)
{
    for (int i = 0; i < rows->count; i++) {
        const struct bench_case *c = &rows->row[i].c;
        if (c->out_features > 0 || c->context > 0 || c->operation == BENCH_PAGED_ATTENTION_PREFILL ||
            c->operation == BENCH_LATENT_ATTENTION_PREFILL)
            return true;
    }
    return false;
}

/* Drops the rows of operations that the backend does not have. */
static void keep_measured(struct rows *rows)
{
    int kept = 0;
    for (int i = 0; i < rows->count; i++)
        if (rows->row[i].time.seconds > 0) rows->row[kept++] = rows->row[i];
    rows->count = kept;
}

static enum status measure_all(struct measurement *m, const struct bench_case *yardstick, int threads,
                               struct bench_device *d, struct error *err)
{
    struct bench_time time;
    enum status status = measure_memory(m, threads, d, err);
    if (status == STATUS_OK && has_matmuls(&m->rows)) {
        status = bench_device_run(d, yardstick, &time, err);
        if (status == STATUS_OK) note_matmul(&m->limits, &time);
    }
    for (int i = 0; i < m->rows.count && status == STATUS_OK; i++) {
        struct row *row = &m->rows.row[i];
        status = bench_device_run(d, &row->c, &row->time, err);
        if (status == STATUS_OK && row->time.seconds > 0) note_matmul(&m->limits, &row->time);
    }
    keep_measured(&m->rows);
    return status == STATUS_OK ? measure_memory(m, threads, d, err) : status;
}

static enum status measure(struct measurement *m, int threads, struct error *err)
{
    struct bench_case cases[MAX_CASES + 1];
    struct bench_device *d;
    const double start = clock_seconds();
    for (int i = 0; i < m->rows.count; i++) cases[i] = m->rows.row[i].c;
    /* A matmul large enough for every unit of the device. */
    const struct bench_case yardstick = matmul_case(&m->matmuls, MATMUL_GATE_UP, m->ranks[0]->discrete ? 4096 : 512);
    cases[m->rows.count] = yardstick;
    enum status status = bench_device_open_ranks(m->ranks, m->num_ranks, &m->sizes, cases, m->rows.count + 1, &d, err);
    if (status == STATUS_OK) status = measure_all(m, &yardstick, threads, d, err);
    bench_device_close(d);
    m->seconds = clock_seconds() - start;
    return status;
}

/* ---- the report ---- */

enum limit { LIMIT_MEMORY, LIMIT_LINK, LIMIT_MATMULS, NUM_LIMITS };

static const char *const limit_names[NUM_LIMITS] = {"memory", "link", "matmuls"};

/* How a row compares with its limit: the one of memory, link and matmuls that takes the most time. */
struct standing {
    enum limit limit;
    double bytes_per_second; /* through memory, or through the link if that is the limit */
    double percent;
};

static struct standing standing_of(const struct limits *limits, const struct bench_time *time)
{
    const double least[NUM_LIMITS] = {[LIMIT_MEMORY] = time->bytes / limits->memory,
                                      [LIMIT_LINK] = limits->link > 0 ? time->link_bytes / limits->link : 0,
                                      [LIMIT_MATMULS] = limits->matmuls > 0 ? time->operations / limits->matmuls : 0};
    enum limit first = LIMIT_MEMORY;
    for (enum limit i = LIMIT_LINK; i < NUM_LIMITS; i++)
        if (least[i] > least[first]) first = i;
    const double bytes = first == LIMIT_LINK ? time->link_bytes : time->bytes;
    return (struct standing){first, bytes / time->seconds, 100 * least[first] / time->seconds};
}

/* Why a row may be faster than its limit. */
static const char above_on_cpu[] =
    "a part of the operands comes from the processor's caches, or memory was busier while its limit was measured";
static const char above_on_gpu[] = "a part of the operands comes from the L2 cache, or they are read without being "
                                   "written, which is faster than the copy that gives the limit";

static bool is_above(const struct standing *s)
{
    return s->percent >= 100.05; /* shown as 100.1 or more */
}

static void number_cell(struct table *t, bool shown, double value)
{
    char text[32] = "";
    if (shown) report_format(text, sizeof text, value);
    table_cell(t, "%s", text);
}

static bool print_table(const struct measurement *m)
{
    struct table t = {.columns = "llrrrrrrl"};
    bool above = false;
    table_row(&t, "kernel", "shape", "us", "min", "max", "GB/s", "GFLOP/s", "%", "of");
    for (int i = 0; i < m->rows.count; i++) {
        const struct row *row = &m->rows.row[i];
        const struct standing s = standing_of(&m->limits, &row->time);
        table_cell(&t, "%s", bench_operation_name(row->c.operation));
        table_cell(&t, "%s", row->shape);
        number_cell(&t, true, 1e6 * row->time.seconds);
        number_cell(&t, true, 1e6 * row->time.fastest);
        number_cell(&t, true, 1e6 * row->time.slowest);
        number_cell(&t, s.limit != LIMIT_MATMULS, s.bytes_per_second / 1e9);
        number_cell(&t, s.limit == LIMIT_MATMULS, row->time.operations / row->time.seconds / 1e9);
        table_cell(&t, "%.1f", s.percent);
        table_cell(&t, "%s%s", limit_names[s.limit], is_above(&s) ? " *" : "");
        above = above || is_above(&s);
    }
    const bool ok = table_print(&t, stdout);
    if (above) printf("\n* above 100: %s\n", m->ranks[0]->discrete ? above_on_gpu : above_on_cpu);
    table_free(&t);
    return ok;
}

static json_t *row_json(const struct measurement *m, const struct row *row)
{
    const struct standing s = standing_of(&m->limits, &row->time);
    return json_pack("{s:s, s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:s}", "kernel",
                     bench_operation_name(row->c.operation), "shape", row->shape, "count", row->c.count, "microseconds",
                     1e6 * row->time.seconds, "fastest_microseconds", 1e6 * row->time.fastest, "slowest_microseconds",
                     1e6 * row->time.slowest, "bytes", row->time.bytes, "operations", row->time.operations,
                     "gb_per_second", s.bytes_per_second / 1e9, "gflops",
                     row->time.operations / row->time.seconds / 1e9, "percent_of_limit", s.percent, "limit",
                     limit_names[s.limit]);
}

/* The settings and limits; a title and a table "what, value, unit" for a person. */
static void report_settings(struct report *r, const struct measurement *m, const struct kernels_options *o, int threads)
{
    char cores[40];
    const char *model = o->model ? o->model : "Llama-3.2-1B";
    const bool quantized = m->quantization.text[0];
    bench_report_device(r, "kernels", model, m->ranks[0]->name, threads, m->ranks[0]->isa, cores);
    report_integer(r, "tensor_parallel_size", NULL, m->num_ranks);
    report_string(r, "weights_dtype", dtype_name(m->sizes.weights));
    report_string(r, "dtype", dtype_name(m->sizes.activations));
    report_string(r, "kv_cache_dtype", dtype_name(m->sizes.cache));
    report_string(r, "quantization", quantized ? m->quantization.text : "none");
    snprintf(r->title, sizeof r->title,
             "kernels: shapes of %.300s on %s%s, weights %s%s%s, activations %s, cache %s, in %.1f s", model,
             m->ranks[0]->name, cores, dtype_name(m->sizes.weights), quantized ? " and " : "", m->quantization.text,
             dtype_name(m->sizes.activations), dtype_name(m->sizes.cache), m->seconds);
    for (int32_t i = 0; i < m->num_ranks && m->num_ranks > 1; i++) {
        const size_t length = strlen(r->title);
        snprintf(r->title + length, sizeof r->title - length, "%s%s", i == 0 ? "\nranks    " : ", ", m->ranks[i]->name);
    }
    bench_report_machine(r, m->ranks[0]->discrete ? m->ranks[0]->name : NULL);
    report_number(r, "memory_gb_per_second",
                  m->ranks[0]->discrete ? "memory, by a large copy" : "memory, by reading it", m->limits.memory / 1e9,
                  "GB/s");
    if (m->limits.link > 0)
        report_number(r, "link_gb_per_second", "link to the host, by a large copy", m->limits.link / 1e9, "GB/s");
    if (m->limits.matmuls > 0)
        report_number(r, "matmul_gflops", "matmuls, by the fastest", m->limits.matmuls / 1e9, "GFLOP/s");
}

static enum status print_report(const struct measurement *m, const struct kernels_options *o, int threads,
                                struct error *err)
{
    struct report r;
    report_init(&r);
    report_settings(&r, m, o, threads);
    json_t *kernels = json_array();
    for (int i = 0; i < m->rows.count; i++) json_array_append_new(kernels, row_json(m, &m->rows.row[i]));
    json_object_set_new(r.json, "kernels", kernels);
    bool ok = report_print(&r, o->json, stdout);
    if (ok && !o->json) ok = putchar('\n') != EOF && print_table(m);
    report_free(&r);
    return ok ? STATUS_OK : error_set(err, STATUS_IO, "cannot write the results to standard output");
}

/* ---- the command ---- */

static enum status choose_sizes(const struct kernels_options *o, struct measurement *m, struct error *err)
{
    struct bench_sizes *sizes = &m->sizes;
    struct model_config config;
    enum dtype weights = DTYPE_BFLOAT16;
    enum status status = STATUS_OK;
    use_llama_1b(&config.spec);
    if (o->model) {
        status = model_config_load(o->model, NULL, NULL, &config, err);
        weights = config.spec.dtype;
    }
    if (status == STATUS_OK) status = quantization_apply(&config.spec, o->quantization, err);
    if (status == STATUS_OK) status = bench_matmuls_of(&config.spec, &m->matmuls, err);
    if (status != STATUS_OK) return status;
    *sizes = bench_sizes_of(&config.spec);
    m->quantization = quantization_words(&config.spec);
    if (strcmp(o->dtype, "auto") != 0 && dtype_parse(o->dtype, &weights) != 0)
        return error_set(err, STATUS_INVALID, "--dtype is \"%s\", but must be auto, float32, float16 or bfloat16",
                         o->dtype);
    sizes->activations = m->ranks[0]->discrete ? weights : DTYPE_FLOAT32; /* as the engine chooses */
    sizes->cache = sizes->activations;
    dtype_parse(o->kv_cache_dtype, &sizes->cache); /* "auto" changes nothing */
    sizes->block_size = o->block_size;
    sizes->weights = weights;
    return STATUS_OK;
}

/* The device of a rank: entry `rank` of "cuda:A,B"; else those after the first. */
static enum status name_device(const struct kernels_options *o, const struct measurement *m, int32_t rank, char *device,
                               size_t size, struct error *err)
{
    const int32_t count = gpu_list_count(o->device);
    if (count > 1 && count != o->num_ranks)
        return error_set(err, STATUS_INVALID, "device '%s' names %d GPUs, but --tensor-parallel-size is %d", o->device,
                         count, o->num_ranks);
    if (count > 1)
        snprintf(device, size, "cuda:%d", gpu_list_at(o->device, rank));
    else if (rank == 0)
        snprintf(device, size, "%s", o->device);
    else if (m->ranks[0]->discrete)
        snprintf(device, size, "cuda:%d", gpu_list_at(m->ranks[0]->name, 0) + rank);
    else
        snprintf(device, size, "cpu");
    return STATUS_OK;
}

static enum status open_devices(const struct kernels_options *o, int threads, struct measurement *m, struct error *err)
{
    const struct log log = {LOG_WARNING};
    const int share = threads / o->num_ranks > 0 ? threads / o->num_ranks : 1;
    enum status status = STATUS_OK;
    if (o->num_ranks > 1) backend_expect_ranks();
    for (int32_t r = 0; r < o->num_ranks && status == STATUS_OK; r++) {
        char device[64];
        status = name_device(o, m, r, device, sizeof device, err);
        if (status == STATUS_OK) status = open_device(device, share, o->cpu_isa, &log, &m->ranks[r], err);
        m->num_ranks += status == STATUS_OK;
    }
    return status == STATUS_OK ? backend_group_open(m->ranks, m->num_ranks, err) : status;
}

static enum status run_all(const struct kernels_options *o, int threads, struct measurement *m, struct error *err)
{
    enum status status = choose_sizes(o, m, err);
    if (status == STATUS_OK) add_all(m);
    if (status == STATUS_OK && m->rows.count == 0)
        status = error_set(err, STATUS_INVALID,
                           "no kernel or shape contains '%s'; without --filter quire bench kernels shows them all",
                           o->filter);
    if (status == STATUS_OK) status = measure(m, threads, err);
    if (status == STATUS_OK && m->rows.count == 0)
        status = error_set(err, STATUS_UNSUPPORTED, "%s has no kernel for what contains '%s' (--filter)",
                           m->ranks[0]->name, o->filter);
    return status == STATUS_OK ? print_report(m, o, threads, err) : status;
}

static enum status run_kernels(const struct kernels_options *o, struct error *err)
{
    struct measurement m = {.rows = {.filter = o->filter}};
    const int threads = o->threads > 0 ? o->threads : processors_allowed();
    enum status status = open_devices(o, threads, &m, err);
    if (status == STATUS_OK) status = run_all(o, threads, &m, err);
    for (int32_t r = 0; r < m.num_ranks; r++) m.ranks[r]->destroy(m.ranks[r]);
    return status;
}

static void add_flags(const struct command *c, struct option_table *table, void *options)
{
    (void)c;
    struct kernels_options *o = options;
    *o = (struct kernels_options){.device = "auto",
                                  .cpu_isa = "auto",
                                  .dtype = "auto",
                                  .quantization = "none",
                                  .kv_cache_dtype = "auto",
                                  .block_size = 16,
                                  .num_ranks = 1};
    const struct option_spec specs[] = {
        {"model", OPTION_STRING, &o->model, "PATH|ORG/NAME",
         .help = "Folder whose config.json gives the shapes, or a model in the Hugging Face cache. Default: the shapes "
                 "of Llama-3.2-1B.",
         .heading = "Kernels:", .letter = 'm', .not_empty = true},
        {"device", OPTION_CUSTOM, &o->device, "auto|cpu|cuda|cuda:N,..",
         .help = "Where to compute. Default: auto, a GPU if there is one.", .parse = engine_flags_parse_device},
        {"tensor-parallel-size", OPTION_INT32, &o->num_ranks, "N",
         .help = "Measure what N devices do together, too; the other kernels are those of one device with the whole "
                 "model. Default: 1.",
         .letters = "tp", .minimum = 1, .maximum = COLLECTIVE_MAX_RANKS},
        {"dtype", OPTION_CUSTOM, &o->dtype, "auto|float32|float|float16|half|bfloat16",
         .help = "Type of the weights, and on a GPU of everything; activations are float32 on the CPU. Default: auto, "
                 "the model's, bfloat16 without --model.",
         .parse = engine_flags_parse_dtype},
        {"quantization", OPTION_CHOICE, &o->quantization, "none|fp8|int8|int4",
         .help = "Format of the layers' weights. Default: none, the model's own."},
        {"kv-cache-dtype", OPTION_CHOICE, &o->kv_cache_dtype, "auto|float32|float16|bfloat16|fp8|fp8_e4m3|fp8_e5m2",
         .help = "Type of the KV cache. Default: auto, that of the activations."},
        {"block-size", OPTION_ENUM, &o->block_size, "8|16|32|64|128",
         .help = "Tokens in a block of the KV cache. Default: 16.", .values = engine_flags_block_sizes},
        {"threads", OPTION_INT32, &o->threads, "N",
         .help = "Threads of the CPU. Default: 0, every processor that may be used.", .letter = 't', .maximum = 4096},
        {"cpu-isa", OPTION_CHOICE, &o->cpu_isa, "auto|scalar|avx2|avx512|avx512vnni|amx",
         .help = "Instruction set of the CPU's kernels. Default: auto, the widest that the processor has."},
        {"filter", OPTION_STRING, &o->filter, "TEXT",
         .help = "Only what has this text in its kernel or shape: 'linear', 'linear 1 token', '2048x2048'."},
        {"json", OPTION_SWITCH, &o->json, .help = "Print one JSON object."},
    };
    option_table_add(table, specs, sizeof specs / sizeof specs[0]);
}

static int run(void *options)
{
    struct kernels_options *o = options;
    struct error err;
    char model[PATH_MAX];
    enum status status = STATUS_OK;
    if (o->model) status = model_folder_resolve(&o->model, NULL, false, model, sizeof model, &err);
    if (status == STATUS_OK) status = run_kernels(o, &err);
    return status == STATUS_OK ? EXIT_STATUS_OK : command_fail("bench", &err, EXIT_STATUS_FAILURE);
}

const struct command bench_kernels = {
    .name = "kernels",
    .summary = "each kernel alone: time, and how much of what the device can do",
    .usage = "bench kernels [flags]",
    .options_size = sizeof(struct kernels_options),
    .add = add_flags,
    .run = run,
};
