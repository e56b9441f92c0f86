#include "model/weights.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/host_memory.h"
#include "base/random.h"
#include "model/json.h"

/* --- The tensors of a model, one by one --- */

/* Where one tensor goes. Exactly one of matrix, bias and gain is set. */
struct place {
    char name[96];
    int64_t rows, columns; /* columns 0: a vector */
    struct weight *matrix;
    struct weight *bias; /* the matrix whose bias it is, already placed */
    const void **gain;
};

/* What is done with each tensor, in the order of the forward pass. */
struct visitor {
    enum status (*visit)(struct visitor *v, const struct place *place);
    enum status status; /* the first failure; nothing is visited after it */
};

static void visit(struct visitor *v, const struct place *place)
{
    if (v->status == STATUS_OK) v->status = v->visit(v, place);
}

static struct place place_named(int64_t rows, int64_t columns, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static struct place place_named(int64_t rows, int64_t columns, const char *format, ...)
{
    struct place place = {.rows = rows, .columns = columns};
    va_list args;
    va_start(args, format);
    vsnprintf(place.name, sizeof place.name, format, args);
    va_end(args);
    return place;
}

static void visit_gain(struct visitor *v, const struct place *named, const void **gain)
{
    struct place place = *named;
    place.gain = gain;
    visit(v, &place);
}

/* model.layers.N.<module>.weight, and .bias */
static void visit_linear(struct visitor *v, int layer, const char *module, int64_t rows, int64_t columns, bool bias,
                         struct weight *matrix)
{
    struct place place = place_named(rows, columns, "model.layers.%d.%s.weight", layer, module);
    place.matrix = matrix;
    visit(v, &place);
    if (!bias) return;
    place = place_named(rows, 0, "model.layers.%d.%s.bias", layer, module);
    place.bias = matrix;
    visit(v, &place);
}

static void visit_layer(struct visitor *v, const struct model_config *c, int i, struct layer_weights *layer)
{
    const int64_t hidden = c->hidden_size, inner = c->intermediate_size;
    const int64_t q = (int64_t)c->num_heads * c->head_size, kv = (int64_t)c->num_kv_heads * c->head_size;
    struct place norm = place_named(hidden, 0, "model.layers.%d.input_layernorm.weight", i);
    visit_gain(v, &norm, &layer->input_norm);
    layer->qkv.num_parts = 3;
    visit_linear(v, i, "self_attn.q_proj", q, hidden, c->attention_bias, &layer->qkv.parts[0]);
    visit_linear(v, i, "self_attn.k_proj", kv, hidden, c->attention_bias, &layer->qkv.parts[1]);
    visit_linear(v, i, "self_attn.v_proj", kv, hidden, c->attention_bias, &layer->qkv.parts[2]);
    visit_linear(v, i, "self_attn.o_proj", hidden, q, c->attention_bias, &layer->o);
    norm = place_named(hidden, 0, "model.layers.%d.post_attention_layernorm.weight", i);
    visit_gain(v, &norm, &layer->post_attention_norm);
    layer->gate_up.num_parts = 2;
    visit_linear(v, i, "mlp.gate_proj", inner, hidden, c->mlp_bias, &layer->gate_up.parts[0]);
    visit_linear(v, i, "mlp.up_proj", inner, hidden, c->mlp_bias, &layer->gate_up.parts[1]);
    visit_linear(v, i, "mlp.down_proj", hidden, inner, c->mlp_bias, &layer->down);
}

static enum status visit_all(struct visitor *v, const struct model_config *c, struct model_weights *w)
{
    struct place embedding = place_named(c->vocab_size, c->hidden_size, "model.embed_tokens.weight");
    embedding.matrix = &w->embedding;
    visit(v, &embedding);
    for (int i = 0; i < c->num_layers; i++) visit_layer(v, c, i, &w->layers[i]);
    struct place norm = place_named(c->hidden_size, 0, "model.norm.weight");
    visit_gain(v, &norm, &w->final_norm);
    if (c->tie_word_embeddings) {
        w->lm_head = w->embedding;
        return v->status;
    }
    struct place head = place_named(c->vocab_size, c->hidden_size, "lm_head.weight");
    head.matrix = &w->lm_head;
    visit(v, &head);
    return v->status;
}

static int64_t place_elements(const struct place *place)
{
    return place->rows * (place->columns ? place->columns : 1);
}

static enum status allocate_layers(const struct model_config *config, struct model_weights *w, struct error *err)
{
    *w = (struct model_weights){.num_layers = config->num_layers};
    w->layers = calloc((size_t)config->num_layers, sizeof *w->layers);
    if (w->layers) return STATUS_OK;
    return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the weights of %d layers", config->num_layers);
}

/* Closed form, since a report is wanted before anything is allocated. model_config's limits keep it within 64 bits. */
int64_t model_weights_bytes(const struct model_config *c)
{
    const int64_t hidden = c->hidden_size, inner = c->intermediate_size;
    const int64_t q = (int64_t)c->num_heads * c->head_size, kv = (int64_t)c->num_kv_heads * c->head_size;
    int64_t layer = 2 * hidden + 2 * hidden * q + 2 * hidden * kv + 3 * hidden * inner;
    if (c->attention_bias) layer += q + 2 * kv + hidden;
    if (c->mlp_bias) layer += 2 * inner + hidden;
    const int64_t table = (int64_t)c->vocab_size * hidden;
    return (c->num_layers * layer + hidden + (c->tie_word_embeddings ? 1 : 2) * table) * dtype_size(c->dtype);
}

/* --- From a file --- */

struct finder {
    struct visitor visitor;
    struct model_weights *weights;
    const char *folder;
    bool *used; /* [safetensors_count] */
    const struct safetensor *first_gain;
    struct error *err;
};

struct shape_text {
    char text[160];
};

static struct shape_text shape_text(const int64_t *shape, int num_dims)
{
    struct shape_text out = {"["};
    size_t n = 1;
    for (int i = 0; i < num_dims; i++) /* at most 8 numbers of 19 digits: cut, never overrun */
        n += (size_t)snprintf(out.text + n, sizeof out.text - n, i ? ", %lld" : "%lld", (long long)shape[i]);
    snprintf(out.text + n, sizeof out.text - n, "]");
    return out;
}

static enum status missing(const struct finder *f, const struct place *place)
{
    const char *hint = "";
    if (strcmp(place->name, "lm_head.weight") == 0)
        hint = "; a model without it has \"tie_word_embeddings\": true in config.json";
    if (place->bias) hint = "; config.json says that this layer has biases";
    return error_set(f->err, STATUS_INVALID, "%s: there is no tensor \"%s\" in %s%s", f->folder, place->name,
                     safetensors_path(f->weights->file), hint);
}

static enum status check_shape(const struct finder *f, const struct place *place, const struct safetensor *t)
{
    const int num_dims = place->columns ? 2 : 1;
    const int64_t shape[2] = {place->rows, place->columns};
    bool same = t->num_dims == num_dims;
    for (int i = 0; same && i < num_dims; i++) same = t->shape[i] == shape[i];
    if (same) return STATUS_OK;
    return error_set(f->err, STATUS_INVALID, "%s: tensor \"%s\" has shape %s, but config.json makes it %s", t->path,
                     place->name, shape_text(t->shape, t->num_dims).text, shape_text(shape, num_dims).text);
}

static enum status check_dtype(const struct finder *f, const struct place *place, const struct safetensor *t,
                               enum dtype *dtype)
{
    if (safetensors_to_dtype(t->dtype, dtype) != 0 || dtype_size(*dtype) == 1)
        return error_set(f->err, STATUS_UNSUPPORTED,
                         "%s: tensor \"%s\" has dtype %s, but weights must be F32, F16 or BF16 (quantized checkpoints "
                         "are not read)",
                         t->path, place->name, safetensors_dtype_name(t->dtype));
    return STATUS_OK;
}

/* `what` must have the dtype that `other` has. */
static enum status differs(const struct finder *f, const struct safetensor *t, const char *other, enum dtype expected)
{
    return error_set(f->err, STATUS_UNSUPPORTED, "%s: tensor \"%s\" has dtype %s, but %s has %s; they must be the same",
                     t->path, t->name, safetensors_dtype_name(t->dtype), other, dtype_name(expected));
}

static enum status put_gain(struct finder *f, const struct place *place, const struct safetensor *t, enum dtype dtype)
{
    if (!f->first_gain) {
        f->first_gain = t;
        f->weights->norm_dtype = dtype;
    }
    if (dtype != f->weights->norm_dtype) return differs(f, t, f->first_gain->name, f->weights->norm_dtype);
    *place->gain = t->data;
    return STATUS_OK;
}

static enum status find_tensor(struct visitor *visitor, const struct place *place)
{
    struct finder *f = (struct finder *)visitor;
    struct model_weights *w = f->weights;
    const struct safetensor *t = safetensors_find(w->file, place->name);
    enum dtype dtype;
    if (!t) return missing(f, place);
    enum status status = check_shape(f, place, t);
    if (status == STATUS_OK) status = check_dtype(f, place, t, &dtype);
    if (status != STATUS_OK) return status;
    f->used[t - safetensors_at(w->file, 0)] = true;
    w->bytes += (int64_t)t->bytes;
    if (place->gain) return put_gain(f, place, t, dtype);
    if (place->matrix) {
        *place->matrix = (struct weight){.data = t->data,
                                         .format = weight_format_of(dtype),
                                         .out_features = place->rows,
                                         .in_features = place->columns};
        return STATUS_OK;
    }
    place->bias->bias = t->data;
    place->bias->bias_dtype = dtype;
    return STATUS_OK;
}

static enum status check_projection(const struct finder *f, int layer, const char *name, const struct projection *p)
{
    for (int i = 1; i < p->num_parts; i++)
        if (p->parts[i].format != p->parts[0].format)
            return error_set(f->err, STATUS_UNSUPPORTED,
                             "%s: the %s projections of model.layers.%d have dtypes %s and %s; they must be the same",
                             safetensors_path(f->weights->file), name, layer, dtype_name(weight_dtype(&p->parts[0])),
                             dtype_name(weight_dtype(&p->parts[i])));
    return STATUS_OK;
}

static enum status check_projections(const struct finder *f)
{
    const struct model_weights *w = f->weights;
    for (int i = 0; i < w->num_layers; i++) {
        enum status status = check_projection(f, i, "q, k and v", &w->layers[i].qkv);
        if (status == STATUS_OK) status = check_projection(f, i, "gate and up", &w->layers[i].gate_up);
        if (status != STATUS_OK) return status;
    }
    return STATUS_OK;
}

static bool harmless(const struct model_config *config, const char *name)
{
    static const char buffer[] = "rotary_emb.inv_freq";
    const size_t n = strlen(name), m = sizeof buffer - 1;
    if (n >= m && strcmp(name + n - m, buffer) == 0) return true;
    return config->tie_word_embeddings && strcmp(name, "lm_head.weight") == 0;
}

static void warn_unused(const struct finder *f, const struct model_config *config, const struct log *log)
{
    enum { NAMED = 8 }; /* a wrong config can leave hundreds */
    int64_t unused = 0;
    for (int64_t i = 0; i < safetensors_count(f->weights->file); i++) {
        const struct safetensor *t = safetensors_at(f->weights->file, i);
        if (f->used[i] || harmless(config, t->name)) continue;
        if (unused++ < NAMED)
            log_write(log, LOG_WARNING, "%s: tensor \"%s\" is not used", t->path, show_string(t->name).text);
    }
    if (unused > NAMED)
        log_write(log, LOG_WARNING, "%s: %lld more tensors are not used", f->folder, (long long)(unused - NAMED));
}

enum status model_weights_open(const char *folder, const struct model_config *config, const struct log *log,
                               struct model_weights *weights, struct error *err)
{
    struct finder f = {.visitor = {find_tensor, STATUS_OK}, .weights = weights, .folder = folder, .err = err};
    enum status status = allocate_layers(config, weights, err);
    if (status == STATUS_OK) status = safetensors_open_folder(folder, &weights->file, err);
    if (status == STATUS_OK) {
        f.used = calloc((size_t)safetensors_count(weights->file) + 1, sizeof *f.used);
        status = f.used ? visit_all(&f.visitor, config, weights)
                        : error_set(err, STATUS_OUT_OF_MEMORY, "%s: out of memory", folder);
    }
    if (status == STATUS_OK) status = check_projections(&f);
    if (status == STATUS_OK) {
        warn_unused(&f, config, log);
    } else {
        model_weights_close(weights);
    }
    free(f.used);
    return status;
}

/* --- Random --- */

enum { DUMMY_ALIGNMENT = 64, DUMMY_VALUES = 4 * 255 + 1 };

struct dummy {
    struct visitor visitor;
    struct model_weights *weights;
    enum dtype dtype;
    uint64_t seed;
    uint64_t tensors; /* visited so far: each has numbers of its own */
    int64_t offset;   /* in weights->dummy */
    union {
        uint16_t half[DUMMY_VALUES];
        float single[DUMMY_VALUES];
    } values; /* of dtype: what each sum of four bytes stands for */
    union {
        uint16_t half;
        float single;
    } one; /* 1 in dtype */
};

/* The sums of the four bytes of each half of x: 0 to 1020, nearly normal. */
static inline void byte_sums(uint64_t x, uint32_t *low, uint32_t *high)
{
    const uint64_t pairs = (x & 0x00ff00ff00ff00ffu) + ((x >> 8) & 0x00ff00ff00ff00ffu);
    const uint64_t sums = pairs + (pairs >> 16);
    *low = (uint32_t)(sums & 0xffff);
    *high = (uint32_t)((sums >> 32) & 0xffff);
}

static void fill_random16(uint16_t *out, int64_t count, uint64_t seed, const uint16_t *values)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count / 2; i++) {
        uint32_t low, high;
        byte_sums(random_mix(seed + (uint64_t)i * RANDOM_STEP), &low, &high);
        out[2 * i] = values[low];
        out[2 * i + 1] = values[high];
    }
    if (count % 2) out[count - 1] = values[random_mix(seed) % DUMMY_VALUES];
}

static void fill_random32(float *out, int64_t count, uint64_t seed, const float *values)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count / 2; i++) {
        uint32_t low, high;
        byte_sums(random_mix(seed + (uint64_t)i * RANDOM_STEP), &low, &high);
        out[2 * i] = values[low];
        out[2 * i + 1] = values[high];
    }
    if (count % 2) out[count - 1] = values[random_mix(seed) % DUMMY_VALUES];
}

static void prepare_values(struct dummy *d)
{
    /* Four bytes, each uniform on 0..255: mean 510, variance 4 * (256^2 - 1) / 12 = 147.8^2. */
    const float deviation = 0.02f / 147.801f;
    for (int i = 0; i < DUMMY_VALUES; i++) dtype_store(&d->values, d->dtype, i, (float)(i - 510) * deviation);
    dtype_store(&d->one, d->dtype, 0, 1);
}

static int64_t aligned(int64_t bytes)
{
    return (bytes + DUMMY_ALIGNMENT - 1) / DUMMY_ALIGNMENT * DUMMY_ALIGNMENT;
}

static enum status measure_tensor(struct visitor *visitor, const struct place *place)
{
    struct dummy *d = (struct dummy *)visitor;
    d->offset += aligned(place_elements(place) * dtype_size(d->dtype));
    return STATUS_OK;
}

static enum status fill_tensor(struct visitor *visitor, const struct place *place)
{
    struct dummy *d = (struct dummy *)visitor;
    uint8_t *data = (uint8_t *)d->weights->dummy + d->offset;
    const int64_t count = place_elements(place);
    const int size = dtype_size(d->dtype);
    const uint64_t seed = random_mix(d->seed + ++d->tensors * 0xd1342543de82ef95u);
    d->offset += aligned(count * size);
    d->weights->bytes += count * size;
    if (place->gain) {
        for (int64_t i = 0; i < count; i++) memcpy(data + i * size, &d->one, (size_t)size);
        *place->gain = data;
    } else if (size == 2) {
        fill_random16((uint16_t *)data, count, seed, d->values.half);
    } else {
        fill_random32((float *)data, count, seed, d->values.single);
    }
    if (place->matrix)
        *place->matrix = (struct weight){.data = data,
                                         .format = weight_format_of(d->dtype),
                                         .out_features = place->rows,
                                         .in_features = place->columns};
    if (place->bias) {
        place->bias->bias = data;
        place->bias->bias_dtype = d->dtype;
    }
    return STATUS_OK;
}

/* Linux promises memory that it does not have and kills the process later, so what is there is asked first. */
static enum status allocate_dummy(struct model_weights *w, int64_t bytes, struct error *err)
{
    struct host_memory memory;
    enum status status = host_memory_read(&memory, err);
    if (status != STATUS_OK) return status;
    if (bytes <= memory.free_bytes) {
        void *data = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (data != MAP_FAILED) {
            madvise(data, (size_t)bytes, MADV_HUGEPAGE); /* fewer page faults; no harm where refused */
            w->dummy = data;
            w->dummy_bytes = bytes;
            return STATUS_OK;
        }
    }
    return error_set(err, STATUS_OUT_OF_MEMORY,
                     "dummy weights of this config take %.1f GiB of host memory, and %.1f GiB are available",
                     (double)bytes / (1 << 30), (double)memory.free_bytes / (1 << 30));
}

enum status model_weights_dummy(const struct model_config *config, uint64_t seed, struct model_weights *weights,
                                struct error *err)
{
    enum status status = allocate_layers(config, weights, err);
    if (status != STATUS_OK) return status;
    struct dummy d = {.visitor = {measure_tensor, STATUS_OK}, .weights = weights, .dtype = config->dtype, .seed = seed};
    prepare_values(&d);
    weights->norm_dtype = config->dtype;
    visit_all(&d.visitor, config, weights);
    status = allocate_dummy(weights, d.offset, err);
    if (status == STATUS_OK) {
        d.offset = 0;
        d.visitor.visit = fill_tensor;
        status = visit_all(&d.visitor, config, weights);
    }
    if (status != STATUS_OK) model_weights_close(weights);
    return status;
}

void model_weights_close(struct model_weights *weights)
{
    if (weights->dummy) munmap(weights->dummy, (size_t)weights->dummy_bytes);
    safetensors_close(weights->file);
    free(weights->layers);
    *weights = (struct model_weights){0};
}
