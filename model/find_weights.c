/* Weights in the files of a checkpoint: model_weights_open. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/plural.h"
#include "model/checkpoint/foreign_checkpoint.h"
#include "model/stage.h"
#include "model/weights.h"

struct opening {
    struct finder finder;
    struct model_weights *weights;
    const struct model_spec *spec;
    struct tensor_prefix prefix; /* of the text model's names in the files */
};

static enum status out_of_memory(const struct finder *f)
{
    return error_set(f->err, STATUS_OUT_OF_MEMORY, "%s: out of host memory for the weights", f->folder);
}

/* ---- names ---- */

static bool is_stored(const struct opening *o, const char *module, const struct tensor_prefix *prefix)
{
    struct tensor_name name = tensor_name_with(tensor_module_name(o->spec, module).text, prefix);
    strncat(name.text, ".weight", sizeof name.text - strlen(name.text) - 1);
    return tensor_file_find(o->finder.file, name.text) != NULL;
}

/* By the final norm, which every text model has, and its first tensor: other parts of a file have norms, too. */
static void find_prefix(struct opening *o)
{
    const struct tensor_names *names = &o->spec->names;
    o->prefix = tensor_prefixes[0];
    for (int i = NUM_TENSOR_PREFIXES - 1; i >= 0; i--) {
        const struct tensor_prefix *p = &tensor_prefixes[i];
        if (is_stored(o, names->final_norm, p) &&
            (is_stored(o, names->embedding, p) || is_stored(o, "lm_head", p) || o->spec->head.kind != HEAD_NONE))
            o->prefix = *p;
    }
    if (!is_stored(o, "lm_head", &o->prefix)) o->prefix.lm_head = tensor_prefixes[0].lm_head;
}

/* Whether a tensor that holds all experts of a layer has rows where the table has it transposed. Where both have one
 * shape, another tensor tells. */
static bool has_rows(const struct opening *o, const struct tensor *t)
{
    const struct stored_tensor *found = finder_find(&o->finder, t->name);
    const int64_t rows = t->num_experts > 0 ? t->file_rows / t->file_experts : 0;
    return found && found->num_dims == 3 && rows != t->file_columns && found->shape[1] == rows &&
           found->shape[2] == t->file_columns;
}

/* transformers 5 saves some experts as rows that are published transposed. */
static void settle_transposition(const struct opening *o)
{
    const struct tensor_table *table = &o->weights->table;
    bool rows = false;
    if (!o->spec->names.experts_transposed) return;
    for (int32_t i = 0; i < table->count && !rows; i++) {
        const struct tensor *t = &table->tensors[i];
        rows = t->kind == TENSOR_MATRIX && t->merged_in_file && t->transposed && t->expert == 0 && has_rows(o, t);
    }
    for (int32_t i = 0; i < table->count && rows; i++)
        if (table->tensors[i].num_experts > 0) table->tensors[i].transposed = false;
}

/* ---- tensors ---- */

/* Memory for them: of a merged vector the first part takes that of all. */
static float *take_numbers(const struct opening *o, const struct tensor *t, struct weight_source *s)
{
    const struct weights_place place = model_weights_place(o->weights, t);
    if (place.first_row > 0) return (float *)*place.vector + place.first_row;
    return s->owned = malloc((size_t)place.num_rows * sizeof(float));
}

/* The numbers in float32. A gain is spec->gain_offset plus what the file holds, or a multiple of this. */
static enum status convert(const struct opening *o, const struct tensor *t, struct weight_source *s)
{
    const float offset = t->kind == TENSOR_GAIN ? (float)o->spec->gain_offset : 0;
    const float multiplier = t->multiplier != 0 ? t->multiplier : 1;
    const int64_t count = s->weight.out_features;
    const enum dtype dtype = weight_dtype(&s->weight);
    const uint64_t bytes = (uint64_t)(count * dtype_size(dtype));
    float *numbers = take_numbers(o, t, s);
    void *stored = malloc(bytes + 1);
    enum status status = numbers && stored ? STATUS_OK : out_of_memory(&o->finder);
    if (status == STATUS_OK) status = tensor_file_read(s->file, s->weight.data, bytes, stored, o->finder.err);
    for (int64_t i = 0; i < count && status == STATUS_OK; i++)
        numbers[i] = offset + multiplier * dtype_load(stored, dtype, i);
    free(stored);
    s->weight.format = WEIGHT_FLOAT32;
    s->weight.data = numbers;
    return status;
}

/* The only element of the stored tensor. */
static enum status set_scalar(const struct opening *o, const struct tensor *t, const struct stored_tensor *found)
{
    float stored = 0; /* of any dtype */
    enum status status = tensor_file_read(o->finder.file, found->data, found->bytes, &stored, o->finder.err);
    if (status == STATUS_OK) model_weights_set_scalar(o->weights, t, dtype_load(&stored, found->type->dtype, 0));
    return status;
}

/* What stands in place of the table's "k_scale" and "v_scale" behind the name of a layer's attention: in files of
 * compressed-tensors and AutoFP8; of NVIDIA's ModelOpt, for separate and for merged projections; of vLLM itself; of
 * AMD's Quark; and one scale for both. The list is that of vLLM's maybe_remap_kv_scale_name. */
static const char *const cache_scale_names[][2] = {{"k_scale", "v_scale"},
                                                   {"k_proj.k_scale", "v_proj.v_scale"},
                                                   {"qkv_proj.k_scale", "qkv_proj.v_scale"},
                                                   {"attn.k_scale", "attn.v_scale"},
                                                   {"k_proj.output_scale", "v_proj.output_scale"},
                                                   {"kv_scale", "kv_scale"}};
enum { NUM_CACHE_SCALE_NAMES = sizeof cache_scale_names / sizeof *cache_scale_names };

/* A tensor of more than one number is left alone: scales of single heads are not used. */
static enum status find_cache_scale(const struct opening *o, const struct tensor *t)
{
    const int length = (int)(strrchr(t->name, '.') - t->name);
    enum status status = STATUS_OK;
    for (int n = 0; n < NUM_CACHE_SCALE_NAMES && status == STATUS_OK; n++) {
        char name[sizeof t->name + 32];
        snprintf(name, sizeof name, "%.*s.%s", length, t->name, cache_scale_names[n][t->role == TENSOR_V_SCALE]);
        const struct stored_tensor *found = finder_find(&o->finder, name);
        if (!found || !element_is_float(found->type) || found->bytes != (uint64_t)found->type->bytes) continue;
        status = set_scalar(o, t, found);
    }
    return status;
}

/* Ones, or slopes. */
static enum status make_numbers(const struct opening *o, const struct tensor *t, struct weight_source *s)
{
    float *numbers = s->owned = malloc((size_t)t->out_features * sizeof *numbers);
    if (!numbers) return out_of_memory(&o->finder);
    for (int64_t i = 0; i < t->out_features; i++)
        numbers[i] = t->kind == TENSOR_ONES ? 1 : recurrent_slope(&o->spec->layers[t->layer].recurrent, (int32_t)i);
    s->weight = weight_of_tensor(t, DTYPE_FLOAT32);
    s->weight.data = numbers;
    model_weights_set(o->weights, t, &s->weight);
    return STATUS_OK;
}

/* The target's ids, each of which the file has less its index. */
static enum status read_ids(const struct opening *o, const struct tensor *t, const struct stored_tensor *found,
                            const int64_t *stored, int32_t *ids)
{
    const int32_t vocab_size = model_spec_whole(o->spec)->vocab_size;
    for (int64_t i = 0; i < t->out_features; i++) {
        if (stored[i] < -i || stored[i] >= vocab_size - i)
            return error_set(o->finder.err, STATUS_INVALID,
                             "%s: tensor \"%s\" maps id %lld to %lld, but the vocabulary has %d tokens", found->path,
                             found->name, (long long)i, (long long)(i + stored[i]), vocab_size);
        ids[i] = (int32_t)(i + stored[i]);
    }
    return STATUS_OK;
}

static enum status find_ids(const struct opening *o, const struct tensor *t, struct weight_source *s)
{
    const struct finder *f = &o->finder;
    const struct stored_tensor *found = finder_find(f, t->name);
    if (!found || found->type != &element_types[ELEMENT_I64] || found->num_dims != 1 ||
        found->shape[0] != t->out_features)
        return error_set(f->err, STATUS_INVALID,
                         "%s: there is no tensor \"%s\" of %lld elements of type I64 in the safetensors files, which "
                         "maps the ids of the head to those of its target",
                         f->folder, t->name, (long long)t->out_features);
    int64_t *stored = malloc(found->bytes + 1);
    int32_t *ids = s->owned = malloc((size_t)t->out_features * sizeof *ids);
    enum status status = stored && ids ? STATUS_OK : out_of_memory(f);
    if (status == STATUS_OK) status = tensor_file_read(f->file, found->data, found->bytes, stored, f->err);
    if (status == STATUS_OK) status = read_ids(o, t, found, stored, ids);
    free(stored);
    s->weight = weight_of_tensor(t, DTYPE_FLOAT32);
    s->weight.data = ids;
    if (status == STATUS_OK) model_weights_set(o->weights, t, &s->weight);
    return status;
}

static enum status find_tensor(const struct opening *o, const struct tensor *t, struct weight_source *s)
{
    const struct finder *f = &o->finder;
    if (t->kind == TENSOR_CACHE_SCALE) return find_cache_scale(o, t);
    if (!tensor_is_stored(t)) return make_numbers(o, t, s);
    if (t->kind == TENSOR_IDS) return find_ids(o, t, s);
    if (t->optional && !finder_find(f, t->name)) return STATUS_OK;
    enum status status = weight_source_find(f, t, s);
    if (status == STATUS_OK && t->kind == TENSOR_SCALAR) return set_scalar(o, t, s->data);
    if (status == STATUS_OK && model_weights_converts(o->spec, t)) status = convert(o, t, s);
    if (status != STATUS_OK) return status;
    model_weights_set(o->weights, t, &s->weight);
    return STATUS_OK;
}

/* ---- lm_head ---- */

static enum status same_bytes(const struct tensor_file *file, const struct stored_tensor *a,
                              const struct stored_tensor *b, bool *same, struct error *err)
{
    enum { CHUNK = 1 << 20 };
    char *buffers = malloc(2 * CHUNK);
    enum status status = buffers ? STATUS_OK : error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory");
    *same = true;
    for (uint64_t first = 0; first < a->bytes && *same && status == STATUS_OK; first += CHUNK) {
        const uint64_t bytes = a->bytes - first < CHUNK ? a->bytes - first : CHUNK;
        status = tensor_file_read(file, (const char *)a->data + first, bytes, buffers, err);
        if (status == STATUS_OK)
            status = tensor_file_read(file, (const char *)b->data + first, bytes, buffers + CHUNK, err);
        *same = status == STATUS_OK && memcmp(buffers, buffers + CHUNK, bytes) == 0;
    }
    free(buffers);
    return status;
}

static struct tensor_name head_name(const struct opening *o)
{
    char name[64];
    snprintf(name, sizeof name, "%s.weight", o->spec->names.lm_head);
    return tensor_name_with(name, &o->prefix);
}

/* Whether lm_head is the embedding. Where the spec says so, a stored lm_head is used all the same if it is another. */
static enum status find_tie(const struct opening *o, bool *tied)
{
    const struct finder *f = &o->finder;
    char name[64];
    snprintf(name, sizeof name, "%s.weight", o->spec->names.embedding);
    const struct stored_tensor *head = tensor_file_find(f->file, head_name(o).text);
    const struct stored_tensor *embedding = finder_find(f, tensor_name_with(name, &o->prefix).text);
    *tied = o->spec->tie_word_embeddings;
    if (!*tied || !head || !embedding) return STATUS_OK;
    *tied = head->type == embedding->type && head->bytes == embedding->bytes;
    return *tied ? same_bytes(f->file, head, embedding, tied, f->err) : STATUS_OK;
}

/* The file may hold the matrix that is both as lm_head alone. A stage in the middle has none. */
static void name_tied_embedding(const struct opening *o)
{
    struct tensor *embedding = &o->weights->table.tensors[0];
    const struct tensor_name head = head_name(o);
    if (embedding->role != TENSOR_EMBEDDING) return;
    if (!finder_find(&o->finder, embedding->name) && tensor_file_find(o->finder.file, head.text))
        memcpy(embedding->name, head.text, sizeof embedding->name - 1);
}

/* ---- what is left over ---- */

static bool ends_with(const char *name, const char *end)
{
    const size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

/* Programs that write GPTQ checkpoints give every matrix a bias, which is zero where the model has none. */
static bool is_zero_bias(const struct finder *f, const struct stored_tensor *t)
{
    bool zero = false;
    return ends_with(t->name, ".bias") && tensor_file_is_zero(f->file, t, &zero, f->err) == STATUS_OK && zero;
}

/* The number of the layer that a stored tensor belongs to, and *rest of its name; -1: to none. */
static long layer_number(const struct opening *o, const struct stored_tensor *t, char **rest)
{
    const struct tensor_name layers = tensor_name_with(o->spec->names.layers, &o->prefix);
    const size_t n = strlen(layers.text);
    if (strncmp(t->name, layers.text, n) != 0 || t->name[n] != '.') return -1;
    return strtol(t->name + n + 1, rest, 10);
}

/* Of another stage, which says what is not used; the first says it of tensors of no layer. */
static bool is_of_other_stage(const struct opening *o, const struct stored_tensor *t)
{
    const struct model_spec *spec = o->spec;
    char *rest;
    const long layer = layer_number(o, t, &rest);
    if (!spec->all_stages) return false;
    if (layer >= spec->all_stages->num_layers) return !stage_is_first(spec); /* that predicts further tokens */
    if (layer >= 0) return layer < spec->first_layer || layer >= (long)spec->first_layer + spec->num_layers;
    const struct tensor_name norm = tensor_name_with(spec->names.final_norm, &o->prefix);
    return !stage_is_first(spec) || strcmp(t->name, head_name(o).text) == 0 ||
           strncmp(t->name, norm.text, strlen(norm.text)) == 0;
}

/* The layer of this stage that a stored tensor belongs to, and *rest of its name; NULL: to none. */
static const struct layer_spec *layer_of(const struct opening *o, const struct stored_tensor *t, char **rest)
{
    const long layer = layer_number(o, t, rest) - o->spec->first_layer;
    return layer >= 0 && layer < o->spec->num_layers ? &o->spec->layers[layer] : NULL;
}

/* k and v of a layer that reads another's. */
static bool is_shared(const struct opening *o, const struct stored_tensor *t)
{
    static const char *const names[] = {"k_proj", "v_proj", "k_norm", "v_norm"};
    char *rest;
    const struct layer_spec *layer = layer_of(o, t, &rest);
    for (int i = 0; i < 4 && layer && layer->attention.shares_kv; i++)
        if (strstr(rest, names[i])) return true;
    return false;
}

/* An expert that another rank has. */
static bool is_of_other_rank(const struct opening *o, const struct stored_tensor *t)
{
    const char *experts = o->spec->names.experts;
    char *rest;
    const struct layer_spec *layer = layer_of(o, t, &rest);
    const size_t n = experts ? strlen(experts) : 0;
    if (!layer || !experts || rest[0] != '.' || strncmp(rest + 1, experts, n) != 0 || rest[n + 1] != '.') return false;
    const struct router_params *r = &layer->experts.router;
    const long expert = strtol(rest + n + 2, NULL, 10);
    return expert < r->num_experts && (expert < r->first_own || expert >= r->first_own + router_num_own(r));
}

/* Of a layer that predicts further tokens. */
static bool is_of_next_layer(const struct opening *o, const struct stored_tensor *t)
{
    const struct model_spec *spec = o->spec;
    const char *next = spec->names.next_layers;
    const struct tensor_name layers = tensor_name_with(next ? next : spec->names.layers, &o->prefix);
    const size_t n = strlen(layers.text);
    if (strncmp(t->name, layers.text, n) != 0) return false;
    if (next) return spec->num_next_layers > 0;
    if (t->name[n] != '.') return false;
    const long layer = strtol(t->name + n + 1, NULL, 10), count = model_spec_all_stages(spec)->num_layers;
    return layer >= count && layer < count + spec->num_next_layers;
}

/* What quire knows and does not need: activations are quantized by scales of their own, those of the KV cache belong to
 * the cache, and transformers' tables of lightning attention follow from its slopes. */
static bool harmless(const struct opening *o, const struct stored_tensor *t)
{
    static const char *const ends[] = {"rotary_emb.inv_freq",
                                       ".attn.bias", /* masks */
                                       ".attn.masked_bias",
                                       ".attention.bias",
                                       ".attention.masked_bias",
                                       ".weight_shape",
                                       ".slope_rate",
                                       ".query_decay",
                                       ".key_decay",
                                       ".diagonal_decay",
                                       ".input_scale",
                                       ".output_scale",
                                       ".input_zero_point",
                                       ".output_zero_point",
                                       ".input_global_scale",
                                       ".activation_scale",
                                       ".kv_scale",
                                       ".q_scale",
                                       ".k_scale",
                                       ".v_scale",
                                       ".q_zero_point",
                                       ".k_zero_point",
                                       ".v_zero_point"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_with(t->name, ends[i])) return true;
    if (is_shared(o, t) || is_of_other_rank(o, t)) return true;
    if (o->spec->head.kind == HEAD_EAGLE3 && strcmp(t->name, "t2d") == 0) return true; /* which ids d2t maps to */
    return (o->spec->tie_word_embeddings && strcmp(t->name, head_name(o).text) == 0) || is_zero_bias(&o->finder, t);
}

/* Whether a tensor of a checkpoint with other modalities belongs to one of these: it is neither lm_head nor in a layer
 * of the text model, beside its embedding or its final norm. */
static bool is_of_other_modality(const struct opening *o, const struct stored_tensor *t)
{
    const struct tensor_names *n = &o->spec->names;
    const char *const modules[] = {n->layers, n->embedding, n->final_norm, n->lm_head};
    if (!o->spec->has_vision && !o->spec->has_audio) return false;
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
        const struct tensor_name name = tensor_name_with(modules[i], &o->prefix);
        const size_t length = strlen(name.text);
        if (strncmp(t->name, name.text, length) == 0 && t->name[length] == '.') return false;
    }
    return true;
}

static void warn_of_modalities(const struct opening *o, const struct log *log)
{
    const int64_t tensors = o->weights->other_tensors;
    if (tensors > 0)
        log_write(log, LOG_WARNING, "%s: %s: %lld tensor%s not used; %s refused", o->finder.folder,
                  model_spec_other_parts(o->spec), (long long)tensors, plural(tensors),
                  o->spec->has_audio ? "images and audio are" : "images are");
}

static void warn_unused(const struct opening *o, const struct log *log)
{
    enum { NAMED = 8 }; /* a wrong config can leave hundreds */
    const struct finder *f = &o->finder;
    int64_t unused = 0;
    if (o->spec->head.kind == HEAD_MTP) return; /* the rest is its target's */
    if (o->spec->rank > 0) return;              /* rank 0 says it */
    for (int64_t i = 0; i < tensor_file_count(f->file); i++) {
        const struct stored_tensor *t = tensor_file_at(f->file, i);
        if (f->used[i] || is_of_other_stage(o, t)) continue;
        if (is_of_next_layer(o, t)) {
            o->weights->next_tensors++;
            o->weights->next_bytes += (int64_t)t->bytes;
            continue;
        }
        if (is_of_other_modality(o, t)) {
            o->weights->other_tensors++;
            o->weights->other_bytes += (int64_t)t->bytes;
            continue;
        }
        if (harmless(o, t)) continue;
        if (unused++ < NAMED)
            log_write(log, LOG_WARNING, "%s: tensor \"%s\" is not used", t->path, show_string(t->name).text);
    }
    if (unused > NAMED)
        log_write(log, LOG_WARNING, "%s: %lld more tensor%s not used", f->folder, (long long)(unused - NAMED),
                  unused - NAMED == 1 ? " is" : "s are");
    warn_of_modalities(o, log);
}

/* A copy of a model may lack the layers that predict further tokens, though its config.json counts them. */
static enum status check_next_layer(const struct opening *o)
{
    const struct tensor_name name = tensor_module_name(o->spec, o->spec->names.head_embedding_norm);
    if (is_stored(o, name.text, &o->prefix)) return STATUS_OK;
    return error_set(o->finder.err, STATUS_INVALID,
                     "%s: there is no tensor \"%s.weight\" in the safetensors files: this copy of the model lacks the "
                     "layer that predicts further tokens; choose the method ngram or suffix, or a copy that has it",
                     o->finder.folder, name.text);
}

/* Fills the weights from the file that is open. */
static enum status fill(struct opening *o)
{
    struct model_weights *w = o->weights;
    bool tied = false;
    find_prefix(o);
    enum status status = o->spec->head.kind == HEAD_MTP ? check_next_layer(o) : STATUS_OK;
    if (status == STATUS_OK) status = find_tie(o, &tied);
    if (status == STATUS_OK) status = model_weights_init(o->spec, tied, w, o->finder.err);
    if (status != STATUS_OK) return status;
    tensor_table_rename(&w->table, &o->prefix);
    settle_transposition(o);
    w->sources = calloc((size_t)w->table.count, sizeof *w->sources);
    if (!w->sources) return out_of_memory(&o->finder);
    if (tied) name_tied_embedding(o);
    for (int32_t i = 0; i < w->table.count && status == STATUS_OK; i++)
        status = find_tensor(o, &w->table.tensors[i], &w->sources[i]);
    if (tied) w->lm_head = w->embedding;
    return status == STATUS_OK ? model_weights_check_experts(w, o->finder.err) : status;
}

enum status model_weights_open(const char *folder, const struct model_spec *spec, const struct log *log,
                               struct model_weights *weights, struct error *err)
{
    struct opening o = {.finder = {.folder = folder, .err = err}, .weights = weights, .spec = spec};
    struct tensor_file *file;
    *weights = (struct model_weights){0};
    enum status status = tensor_file_open(folder, &file, err);
    if (status != STATUS_OK) return status;
    o.finder.file = file;
    o.finder.used = calloc((size_t)tensor_file_count(file) + 1, sizeof *o.finder.used);
    status = o.finder.used ? fill(&o) : out_of_memory(&o.finder);
    weights->file = file;
    if (status == STATUS_OK) {
        warn_unused(&o, log);
        if (spec->rank == 0 && stage_is_first(spec)) foreign_checkpoint_warn(folder, log);
    } else {
        model_weights_close(weights);
    }
    free(o.finder.used);
    return status;
}
