#include "runtime/profile/what_if.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "model/quantization.h"
#include "runtime/engine/plan.h"
#include "runtime/table.h"

static const double GIB = 1024.0 * 1024.0 * 1024.0;

/* Types of activations and weights, and then those that only the cache can have. */
static const char *const DTYPES[] = {"float32", "float16", "bfloat16", "fp8"};
enum { NUM_CACHE_DTYPES = sizeof DTYPES / sizeof *DTYPES, NUM_DTYPES = NUM_CACHE_DTYPES - 1 };

struct maker {
    const struct engine_options *now;
    const struct engine_info *base;
    struct what_ifs *out;
};

/* Plans with the options, which differ from now in one field. */
static void add_row(struct maker *m, struct what_if row, const struct engine_options *o, enum dtype weights_dtype)
{
    struct error err;
    if (m->out->count == WHAT_IF_MAX) return;
    const enum status status = plan_again(o, m->base->loaded, weights_dtype, &row.profile, &row.limits, &err);
    if (status != STATUS_OK && status != STATUS_OUT_OF_MEMORY) return;
    row.fits = status == STATUS_OK;
    m->out->rows[m->out->count++] = row;
}

static void add_number(struct maker *m, const char *option, const char *flag, double number,
                       const struct engine_options *o)
{
    struct what_if row = {.option = option, .flag = flag, .number = number};
    snprintf(row.value, sizeof row.value, "%.10g", number);
    add_row(m, row, o, m->base->config->spec.dtype);
}

static void add_dtype(struct maker *m, const char *option, const char *flag, const char *name,
                      const struct engine_options *o, enum dtype weights_dtype)
{
    struct what_if row = {.option = option, .flag = flag, .number = NAN};
    snprintf(row.value, sizeof row.value, "%s", name);
    add_row(m, row, o, weights_dtype);
}

static void block_sizes(struct maker *m)
{
    for (int32_t size = 8; size <= 128; size *= 2) {
        struct engine_options o = *m->now;
        o.block_size = size;
        if (size != m->now->block_size) add_number(m, "block_size", "--block-size", size, &o);
    }
}

static void cache_dtypes(struct maker *m)
{
    for (int i = 0; i < NUM_CACHE_DTYPES; i++) {
        struct engine_options o = *m->now;
        enum dtype dtype;
        o.kv_cache_dtype = DTYPES[i];
        if (dtype_parse(DTYPES[i], &dtype) == 0 && dtype != m->base->memory->cache_dtype)
            add_dtype(m, "kv_cache_dtype", "--kv-cache-dtype", DTYPES[i], &o, m->base->config->spec.dtype);
    }
}

static bool is_quantized(const struct maker *m)
{
    return quantization_words(&m->base->config->spec).text[0] != '\0';
}

/* On a GPU weights are converted to --dtype. On the CPU they stay as the checkpoint has them: another type is another
 * checkpoint, unless it is quantized. */
static void weights_dtypes(struct maker *m)
{
    const struct memory_profile *p = m->base->memory;
    const enum dtype stored = m->base->config->spec.dtype;
    for (int i = 0; i < NUM_DTYPES; i++) {
        struct engine_options o = *m->now;
        enum dtype dtype;
        if (dtype_parse(DTYPES[i], &dtype) != 0 || dtype == (p->discrete ? p->dtype : stored)) continue;
        o.kv_cache_dtype = dtype_name(p->cache_dtype);
        if (p->discrete) {
            o.dtype = DTYPES[i];
            add_dtype(m, "dtype", "--dtype", DTYPES[i], &o, stored);
        } else if (!is_quantized(m)) {
            add_dtype(m, "weights_dtype", "weights of", DTYPES[i], &o, dtype);
        }
    }
}

/* What quire can make of floats while it loads them. */
static void quantizations(struct maker *m)
{
    static const char *const names[] = {"fp8", "int8", "int4"};
    for (int i = 0; i < 3 && !is_quantized(m); i++) {
        struct engine_options o = *m->now;
        o.quantization = names[i];
        add_dtype(m, "quantization", "--quantization", names[i], &o, m->base->config->spec.dtype);
    }
}

/* These rows say what the memory gives, so that a number of blocks that was asked for does not apply. */
static void gpu_shares(struct maker *m)
{
    static const double shares[] = {0.5, 0.8, 0.85, 0.9, 0.95};
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        struct engine_options o = *m->now;
        o.gpu_memory_utilization = shares[i];
        o.num_gpu_blocks_override = 0;
        if (shares[i] != m->now->gpu_memory_utilization || m->now->num_gpu_blocks_override)
            add_number(m, "gpu_memory_utilization", "--gpu-memory-utilization", shares[i], &o);
    }
}

/* Quarters of the layers. */
static void offloaded_experts(struct maker *m)
{
    const struct model_spec *spec = &m->base->config->spec;
    for (int quarter = 0; quarter <= 4 && model_spec_num_experts(spec) > 0 && m->base->num_ranks == 1; quarter++) {
        struct engine_options o = *m->now;
        o.cpu_offload_experts = spec->num_layers * quarter / 4;
        if (o.cpu_offload_experts != m->base->memory->host_expert_layers)
            add_number(m, "cpu_offload_experts", "--cpu-offload-experts", o.cpu_offload_experts, &o);
    }
}

static void cache_spaces(struct maker *m)
{
    for (double space = 1; space * GIB <= (double)m->base->memory->available; space *= 2) {
        struct engine_options o = *m->now;
        o.kv_cache_space = space;
        o.num_gpu_blocks_override = 0;
        if ((int64_t)(space * GIB) != memory_profile_cache_budget(m->base->memory) || m->now->num_gpu_blocks_override)
            add_number(m, "kv_cache_space", "--kv-cache-space", space, &o);
    }
}

static void sequence_limits(struct maker *m)
{
    static const double factors[] = {0.25, 0.5, 2, 4};
    for (int i = 0; i < 4; i++) {
        struct engine_options o = *m->now;
        o.max_num_seqs = (int32_t)(m->base->limits->max_num_seqs * factors[i]);
        if (o.max_num_seqs >= 1 && o.max_num_seqs <= 65535)
            add_number(m, "max_num_seqs", "--max-num-seqs", o.max_num_seqs, &o);
    }
}

/* Powers of two: three below the length, and two above it, up to the model's. */
static void lengths(struct maker *m)
{
    const int64_t now = m->base->limits->max_model_len, most = m->base->memory->model_max_len;
    int64_t below = 1;
    while (2 * below < now) below *= 2;
    for (int64_t length = below < 4 ? 1 : below / 4; length <= 4 * now && length < 2 * most; length *= 2) {
        struct engine_options o = *m->now;
        o.max_model_len = (int32_t)(length < most ? length : most);
        if (o.max_model_len != now) add_number(m, "max_model_len", "--max-model-len", o.max_model_len, &o);
    }
}

void what_ifs_make(const struct engine_options *o, const struct engine_info *base, struct what_ifs *out)
{
    struct maker m = {o, base, out};
    out->count = 0;
    block_sizes(&m);
    cache_dtypes(&m);
    weights_dtypes(&m);
    quantizations(&m);
    if (base->memory->discrete) {
        gpu_shares(&m);
        offloaded_experts(&m);
    } else {
        cache_spaces(&m);
    }
    sequence_limits(&m);
    lengths(&m);
}

/* ---- showing them ---- */

/* In all: what others hold on a GPU counts against its budget, and no memory of quire is more than that on the CPU. */
static int64_t taken(const struct memory_profile *p)
{
    return memory_profile_fixed(p) - p->others + p->kv_cache;
}

static void cells(struct table *t, const struct memory_profile *p, const struct batch_limits *limits)
{
    table_cell(t, "%d", p->num_blocks);
    table_cell(t, "%lld", (long long)memory_profile_tokens(p, limits));
    table_cell(t, "%.2f", memory_profile_concurrency(p, limits));
    table_cell(t, "%.3f", (double)taken(p) / GIB);
}

static void heading(struct table *t, const struct engine_info *base)
{
    const char *gib = base->num_ranks > 1 ? "GiB of a rank" : "GiB in all";
    table_row(t, "what if", "", "blocks", "tokens", "requests", gib, "");
    table_cell(t, "as it is");
    table_cell(t, "%s", "");
    cells(t, base->memory, base->limits);
    table_cell(t, "%s", "");
}

bool what_ifs_print(const struct what_ifs *rows, const struct engine_info *base)
{
    struct table t = {.columns = "llrrrrl"};
    heading(&t, base);
    for (int i = 0; i < rows->count; i++) {
        const struct what_if *row = &rows->rows[i];
        const bool again = i > 0 && strcmp(row->option, rows->rows[i - 1].option) == 0;
        table_cell(&t, "%s", again ? "" : row->flag);
        table_cell(&t, "%s", row->value);
        cells(&t, &row->profile, &row->limits);
        if (!row->fits)
            table_cell(&t, "does not fit");
        else if (strcmp(row->option, "cpu_offload_experts") == 0)
            table_cell(&t, "%.2f MiB a token from the host's %.2f GiB",
                       (double)row->profile.host_token_bytes / (1 << 20), (double)row->profile.host_experts / GIB);
        else if (strcmp(row->option, "max_model_len") != 0 && row->limits.max_model_len != base->limits->max_model_len)
            table_cell(&t, "max_model_len %d", row->limits.max_model_len);
        else
            table_cell(&t, "%s", "");
    }
    const bool ok = table_print(&t, stdout);
    table_free(&t);
    return ok;
}

json_t *what_ifs_json(const struct what_ifs *rows)
{
    json_t *array = json_array();
    for (int i = 0; i < rows->count; i++) {
        const struct what_if *row = &rows->rows[i];
        const struct memory_profile *p = &row->profile;
        json_t *json = json_object();
        json_put_string(json, "option", row->option);
        if (isnan(row->number))
            json_put_string(json, "value", row->value);
        else if (row->number == floor(row->number))
            json_put_integer(json, "value", (int64_t)row->number);
        else
            json_put_real(json, "value", row->number);
        json_object_set_new(json, "fits", json_boolean(row->fits));
        json_put_integer(json, "block_bytes", p->block_bytes);
        json_put_integer(json, "num_gpu_blocks", p->num_blocks);
        json_put_integer(json, "kv_cache_tokens", memory_profile_tokens(p, &row->limits));
        json_put_integer(json, "max_model_len", row->limits.max_model_len);
        json_put_real(json, "max_concurrency", memory_profile_concurrency(p, &row->limits));
        json_put_integer(json, "weights_memory", p->weights);
        json_put_integer(json, "host_experts_memory", p->host_experts);
        json_put_integer(json, "host_bytes_per_token", p->host_token_bytes);
        json_put_integer(json, "quire_memory", taken(p));
        json_array_append_new(array, json);
    }
    return array;
}
