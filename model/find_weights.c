/* Weights in the files of a checkpoint: model_weights_open. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "model/find_weights.h"
#include "model/checkpoint/foreign_checkpoint.h"
#include "model/kv_scales.h"

const struct stored_tensor *find_by_name(const struct tensor_file *file, const char *name)
{
    static const char prefix[] = "model.";
    const size_t length = sizeof prefix - 1;
    const struct stored_tensor *found = tensor_file_find(file, name);
    if (!found && strncmp(name, prefix, length) == 0) found = tensor_file_find(file, name + length);
    return found;
}

void mark_used(const struct finder *f, const struct stored_tensor *found)
{
    f->used[tensor_file_index(f->weights->file, found)] = true;
}

/* ---- checks ---- */

bool has_shape(const struct stored_tensor *found, const int64_t *shape, int num_dims)
{
    bool same = found->num_dims == num_dims;
    for (int i = 0; same && i < num_dims; i++) same = found->shape[i] == shape[i];
    return same;
}

/* "[4096, 128]" */
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

enum status check_shape(const struct finder *f, const struct stored_tensor *found, const int64_t *shape, int num_dims)
{
    if (has_shape(found, shape, num_dims)) return STATUS_OK;
    return error_set(f->err, STATUS_INVALID, "%s: tensor \"%s\" has shape %s, but config.json makes it %s", found->path,
                     found->name, shape_text(found->shape, found->num_dims).text, shape_text(shape, num_dims).text);
}

/* Whether the files have a matrix of floats in packed form. */
static bool is_packed(const struct finder *f, const struct tensor *t)
{
    return t->kind == TENSOR_MATRIX && (find_by_name(f->weights->file, tensor_name_ending(t, ".qweight").text) ||
                                        find_by_name(f->weights->file, tensor_name_ending(t, ".weight_packed").text));
}

static enum status missing(const struct finder *f, const struct tensor *t)
{
    const char *hint = "";
    if (t->role == TENSOR_LM_HEAD) hint = "; a model without it has \"tie_word_embeddings\": true in config.json";
    if (is_packed(f, t)) hint = "; it is packed there, but no \"quantization_config\" in config.json says how";
    if (t->kind == TENSOR_BIAS) hint = "; by its config.json the model has biases here";
    return error_set(f->err, STATUS_INVALID, "%s: there is no tensor \"%s\" in the safetensors files%s", f->folder,
                     t->name, hint);
}

static enum status check_shape_of_floats(const struct finder *f, const struct tensor *t,
                                         const struct stored_tensor *found)
{
    const int num_dims = t->kind == TENSOR_MATRIX ? 2 : t->kind == TENSOR_SCALAR && found->num_dims == 0 ? 0 : 1;
    const int64_t shape[2] = {t->merged_in_file ? t->merged_rows : t->out_features, t->in_features};
    return check_shape(f, found, shape, num_dims);
}

static enum status check_dtype(const struct finder *f, const struct stored_tensor *found, enum dtype *dtype)
{
    if (found->dtype == ELEMENT_F64)
        return error_set(f->err, STATUS_UNSUPPORTED,
                         "%s: tensor \"%s\" has dtype F64, which quire does not read; load the model in float32 or "
                         "bfloat16 with transformers (from_pretrained, dtype), and save it (save_pretrained)",
                         found->path, found->name);
    if (element_type_to_dtype(found->dtype, dtype) != 0 || dtype_size(*dtype) == 1)
        return error_set(f->err, STATUS_UNSUPPORTED,
                         "%s: tensor \"%s\" has dtype %s, but config.json makes it F32, F16 or BF16: its "
                         "\"quantization_config\" says which matrices are quantized",
                         found->path, found->name, element_type_name(found->dtype));
    return STATUS_OK;
}

enum status find_floats(const struct finder *f, const struct tensor *t, const struct stored_tensor **found,
                        enum dtype *dtype)
{
    *found = find_by_name(f->weights->file, t->name);
    if (!*found) return missing(f, t);
    mark_used(f, *found);
    enum status status = check_shape_of_floats(f, t, *found);
    return status == STATUS_OK ? check_dtype(f, *found, dtype) : status;
}

/* ---- finding ---- */

static enum status out_of_memory(const struct finder *f)
{
    return error_set(f->err, STATUS_OUT_OF_MEMORY, "%s: out of host memory for the weights", f->folder);
}

/* The gain is spec->gain_offset plus what the file holds, added in float32. */
static enum status convert_gain(struct finder *f, const struct tensor *t, const struct stored_tensor *found,
                                enum dtype dtype)
{
    const int64_t count = tensor_elements(t);
    void *stored = malloc(found->bytes + 1);
    if (!stored) return out_of_memory(f);
    enum status status = tensor_file_read(f->weights->file, found->data, found->bytes, stored, f->err);
    for (int64_t i = 0; i < count && status == STATUS_OK; i++)
        f->next_gain[i] = (float)f->spec->gain_offset + dtype_load(stored, dtype, i);
    free(stored);
    model_weights_set(f->weights, t, f->next_gain, DTYPE_FLOAT32);
    f->weights->bytes += count * (int64_t)sizeof *f->next_gain;
    f->next_gain += count;
    return status;
}

static enum status read_scalar(struct finder *f, const struct tensor *t, const struct stored_tensor *found,
                               enum dtype dtype)
{
    float stored = 0; /* of any dtype */
    enum status status = tensor_file_read(f->weights->file, found->data, found->bytes, &stored, f->err);
    if (status == STATUS_OK) model_weights_set_scalar(f->weights, t, dtype_load(&stored, dtype, 0));
    return status;
}

/* No training changes these, so a file may lack them. */
static bool is_constant(const struct tensor *t)
{
    return t->role == TENSOR_XIELU_BETA || t->role == TENSOR_XIELU_EPS;
}

static enum status find_tensor(struct finder *f, const struct tensor *t)
{
    struct model_weights *w = f->weights;
    const struct stored_tensor *found;
    enum dtype dtype;
    if (t->scheme.is_quantized) return find_quantized(f, t);
    if (is_constant(t) && !find_by_name(w->file, t->name)) return STATUS_OK;
    enum status status = find_floats(f, t, &found, &dtype);
    if (status != STATUS_OK) return status;
    if (t->kind == TENSOR_SCALAR) return read_scalar(f, t, found, dtype);
    if (t->kind == TENSOR_GAIN && w->gains) return convert_gain(f, t, found, dtype);
    const int64_t row_bytes = (t->in_features > 0 ? t->in_features : 1) * dtype_size(dtype);
    const int64_t skipped = t->merged_in_file ? t->first_row * row_bytes : 0;
    model_weights_set(w, t, (const char *)found->data + skipped, dtype);
    w->bytes += t->out_features * row_bytes;
    return STATUS_OK;
}

static enum status allocate_gains(struct finder *f)
{
    const struct tensor_table *table = &f->weights->table;
    int64_t count = 0;
    for (int32_t i = 0; i < table->count; i++)
        if (table->tensors[i].kind == TENSOR_GAIN) count += tensor_elements(&table->tensors[i]);
    f->weights->gains = f->next_gain = malloc((size_t)count * sizeof *f->next_gain);
    return f->next_gain ? STATUS_OK : out_of_memory(f);
}

static enum status find_all(struct finder *f)
{
    struct model_weights *w = f->weights;
    enum status status = STATUS_OK;
    f->used = calloc((size_t)tensor_file_count(w->file) + 1, sizeof *f->used);
    w->sources = calloc((size_t)w->table.count, sizeof *w->sources);
    if (!f->used || !w->sources) return out_of_memory(f);
    if (f->spec->gain_offset != 0) status = allocate_gains(f);
    for (int32_t i = 0; i < w->table.count && status == STATUS_OK; i++) status = find_tensor(f, &w->table.tensors[i]);
    return status == STATUS_OK ? kv_scales_find(w, f->spec, f->used, f->err) : status;
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

/* Whether lm_head is the embedding. Where the spec says so, a stored lm_head is used all the same if it is another. */
static enum status find_tie(const struct model_spec *spec, const struct tensor_file *file, bool *tied,
                            struct error *err)
{
    char name[64];
    snprintf(name, sizeof name, "%s.weight", spec->names.embedding);
    const struct stored_tensor *head = tensor_file_find(file, "lm_head.weight"), *embedding = find_by_name(file, name);
    *tied = spec->tie_word_embeddings;
    if (!*tied || !head || !embedding) return STATUS_OK;
    *tied = head->dtype == embedding->dtype && head->bytes == embedding->bytes;
    return *tied ? same_bytes(file, head, embedding, tied, err) : STATUS_OK;
}

/* The file may hold the matrix that is both as lm_head alone. */
static void name_tied_embedding(struct model_weights *w)
{
    struct tensor *embedding = &w->table.tensors[0];
    if (!find_by_name(w->file, embedding->name) && tensor_file_find(w->file, "lm_head.weight"))
        snprintf(embedding->name, sizeof embedding->name, "lm_head.weight");
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
    return ends_with(t->name, ".bias") && all_bytes_zero(f, t, &zero) == STATUS_OK && zero;
}

/* What quire knows and does not need: activations are quantized by scales of their own, those of the KV cache belong to
 * the cache. */
static bool harmless(const struct finder *f, const struct stored_tensor *t)
{
    static const char *const ends[] = {"rotary_emb.inv_freq",
                                       ".weight_shape",
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
    return (f->spec->tie_word_embeddings && strcmp(t->name, "lm_head.weight") == 0) || is_zero_bias(f, t);
}

static void warn_unused(const struct finder *f, const struct log *log)
{
    enum { NAMED = 8 }; /* a wrong config can leave hundreds */
    int64_t unused = 0;
    for (int64_t i = 0; i < tensor_file_count(f->weights->file); i++) {
        const struct stored_tensor *t = tensor_file_at(f->weights->file, i);
        if (f->used[i] || harmless(f, t)) continue;
        if (unused++ < NAMED)
            log_write(log, LOG_WARNING, "%s: tensor \"%s\" is not used", t->path, show_string(t->name).text);
    }
    if (unused > NAMED)
        log_write(log, LOG_WARNING, "%s: %lld more tensor%s not used", f->folder, (long long)(unused - NAMED),
                  unused - NAMED == 1 ? " is" : "s are");
}

enum status model_weights_open(const char *folder, const struct model_spec *spec, const struct log *log,
                               struct model_weights *weights, struct error *err)
{
    struct finder f = {.weights = weights, .spec = spec, .folder = folder, .err = err};
    struct tensor_file *file = NULL;
    bool tied = false;
    *weights = (struct model_weights){0};
    enum status status = tensor_file_open(folder, &file, err);
    if (status == STATUS_OK) status = find_tie(spec, file, &tied, err);
    if (status == STATUS_OK) status = model_weights_init(spec, tied, weights, err);
    if (status != STATUS_OK) {
        tensor_file_close(file);
        return status;
    }
    weights->file = file;
    if (tied) name_tied_embedding(weights);
    status = find_all(&f);
    if (tied) weights->lm_head = weights->embedding;
    if (status == STATUS_OK) {
        warn_unused(&f, log);
        foreign_checkpoint_warn(folder, log);
    } else {
        model_weights_close(weights);
    }
    free(f.used);
    return status;
}
