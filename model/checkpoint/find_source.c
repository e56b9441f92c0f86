/* Finding a tensor in the files of a checkpoint: weight_source_find. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/checkpoint/weight_source.h"

/* The types that a stored tensor may have: floats, or the one of that name. */
static const char FLOATS[] = "F32, F16 or BF16", WORDS[] = "I32", FP8[] = "F8_E4M3", INT8[] = "I8";

/* What one of the stored tensors of a matrix must be. */
struct part {
    const char *name; /* in place of ".weight" */
    int64_t shape[2]; /* shape[1] 0: a vector */
    const char *types;
    bool optional;
};

const struct stored_tensor *finder_find(const struct finder *f, const char *name)
{
    static const char *const prefixes[] = {"transformer.", "gpt_neox."};
    const struct stored_tensor *found = tensor_file_find(f->file, name);
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes && !found; i++) {
        const size_t length = strlen(prefixes[i]);
        if (strncmp(name, prefixes[i], length) == 0) found = tensor_file_find(f->file, name + length);
    }
    if (found) f->used[tensor_file_index(f->file, found)] = true;
    return found;
}

static const struct stored_tensor *find_ending(const struct finder *f, const struct tensor *t, const char *end)
{
    return finder_find(f, tensor_name_ending(t, end).text);
}

static int element_bits(const struct tensor *t)
{
    return weight_is_packed(t->scheme.format) ? 4 : 8;
}

static enum status out_of_memory(const struct finder *f)
{
    return error_set(f->err, STATUS_OUT_OF_MEMORY, "out of host memory for the weights");
}

/* ---- shapes and types ---- */

static bool has_shape(const struct stored_tensor *found, const int64_t *shape, int num_dims)
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

/* Whether it has so many elements along one dimension: [n], [1, n] (ERNIE 4.5), [1, 1, n, 1] (Kimi Linear). */
static bool is_line(const struct stored_tensor *found, int64_t elements)
{
    int64_t product = 1;
    int lines = 0;
    for (int i = 0; i < found->num_dims; i++) {
        if (found->shape[i] == 1) continue;
        product = found->shape[i];
        lines++;
    }
    return found->num_dims > 0 && lines <= 1 && product == elements;
}

static enum status check_shape(const struct finder *f, const struct stored_tensor *found, const int64_t *shape,
                               int num_dims)
{
    if (has_shape(found, shape, num_dims)) return STATUS_OK;
    return error_set(f->err, STATUS_INVALID, "%s: tensor \"%s\" has shape %s, but config.json makes it %s", found->path,
                     found->name, shape_text(found->shape, found->num_dims).text, shape_text(shape, num_dims).text);
}

/* ---- floats ---- */

/* Whether the files have a matrix of floats in packed form. */
static bool is_packed(const struct finder *f, const struct tensor *t)
{
    return t->kind == TENSOR_MATRIX &&
           (find_ending(f, t, storages[STORED_GPTQ].data) || find_ending(f, t, storages[STORED_PACKED].data));
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

static enum status check_floats(const struct finder *f, const struct stored_tensor *found)
{
    if (element_is_float(found->type)) return STATUS_OK;
    if (found->type == &element_types[ELEMENT_F64])
        return error_set(f->err, STATUS_UNSUPPORTED,
                         "%s: tensor \"%s\" has dtype F64, which quire does not read; load the model in float32 or "
                         "bfloat16 with transformers (from_pretrained, dtype), and save it (save_pretrained)",
                         found->path, found->name);
    return error_set(f->err, STATUS_UNSUPPORTED,
                     "%s: tensor \"%s\" has dtype %s, but config.json makes it F32, F16 or BF16: its "
                     "\"quantization_config\" says which matrices are quantized",
                     found->path, found->name, found->type->name);
}

static enum status check_float_shape(const struct finder *f, const struct tensor *t, const struct stored_tensor *found)
{
    const int num_dims = t->kind == TENSOR_MATRIX ? 2 : t->kind == TENSOR_SCALAR && found->num_dims == 0 ? 0 : 1;
    const bool of_experts = t->merged_in_file && t->num_experts > 0;
    const int64_t rows = of_experts ? t->file_rows / t->file_experts : t->file_rows;
    int64_t shape[3] = {t->file_experts, rows, t->file_columns};
    if (t->kind == TENSOR_VECTOR && !t->width && is_line(found, t->file_rows)) return STATUS_OK;
    const int64_t channels[3] = {t->width ? t->file_rows / t->width : 0, 1, t->width};
    if (t->width) return check_shape(f, found, channels, 3);
    if (t->kind == TENSOR_MATRIX && t->transposed) shape[1] = t->file_columns, shape[2] = rows;
    if (t->flat) shape[1] *= t->file_experts;
    return of_experts && !t->flat ? check_shape(f, found, shape, num_dims + 1)
                                  : check_shape(f, found, shape + 1, num_dims);
}

/* A vector of a tensor in which other rows lie between its own. */
static enum status copy_vector(const struct finder *f, struct weight_source *s)
{
    const int64_t count = s->weight.out_features;
    s->owned = malloc((size_t)count * sizeof(float));
    s->weight.data = s->owned;
    if (!s->owned) return out_of_memory(f);
    return weight_source_read_floats(s, 0, count, s->owned, f->err);
}

static enum status find_floats(const struct finder *f, const struct tensor *t, struct weight_source *s)
{
    const struct stored_tensor *found = finder_find(f, t->name);
    if (!found) return missing(f, t);
    s->data = found;
    enum status status = check_float_shape(f, t, found);
    if (status == STATUS_OK) status = check_floats(f, found);
    if (status != STATUS_OK || t->scheme.quantize) return status;
    s->weight = weight_of_tensor(t, found->type->dtype);
    if (s->run < t->out_features && t->kind != TENSOR_MATRIX) return copy_vector(f, s);
    if (s->run == t->out_features && t->file_columns == t->in_features && !s->transposed)
        s->weight.data = (const char *)found->data + s->first_row * weight_row_bytes(&s->weight);
    return STATUS_OK;
}

/* ---- the parts of a quantized matrix ---- */

static enum status missing_part(const struct finder *f, const struct tensor *t, const char *name)
{
    const struct stored_tensor *floats = finder_find(f, t->name);
    const char *hint = t->num_experts > 0 ? ", and has a tensor of its own, as those of each expert have" : "";
    if (floats && element_is_float(floats->type)) hint = ", but the files have it as floats";
    return error_set(f->err, STATUS_INVALID,
                     "%s: there is no tensor \"%s\" in the safetensors files; by the \"quantization_config\" of "
                     "config.json this matrix is quantized%s",
                     f->folder, tensor_name_ending(t, name).text, hint);
}

static enum status check_type(const struct finder *f, const struct stored_tensor *found, const char *types)
{
    const char *name = found->type->name;
    if (types == FLOATS ? element_is_float(found->type) : strcmp(name, types) == 0) return STATUS_OK;
    return error_set(f->err, STATUS_INVALID,
                     "%s: tensor \"%s\" has dtype %s, but by the \"quantization_config\" of config.json it is %s",
                     found->path, found->name, name, types);
}

/* *out is NULL if the file does not have an optional part. */
static enum status find_part(const struct finder *f, const struct tensor *t, const struct part *part,
                             const struct stored_tensor **out)
{
    const struct stored_tensor *found = *out = find_ending(f, t, part->name);
    if (!found) return part->optional ? STATUS_OK : missing_part(f, t, part->name);
    enum status status = check_shape(f, found, part->shape, part->shape[1] > 0 ? 2 : 1);
    return status == STATUS_OK ? check_type(f, found, part->types) : status;
}

/* Refuses sizes that struct weight cannot describe, or that do not fill the words of the file. */
static enum status check_sizes(const struct finder *f, const struct tensor *t, const struct weight_source *s)
{
    const struct weight_scheme *c = &t->scheme;
    const int in_word = 32 / element_bits(t);
    const int64_t row_step = c->blocks ? c->group_size : s->storage->transposed ? in_word : 1;
    const int64_t column_step = !s->storage->in_words && !weight_is_packed(c->format) ? 1 : in_word;
    if (t->in_features % column_step || (weight_is_packed(c->format) && t->in_features % s->weight.group_size))
        return error_set(f->err, STATUS_UNSUPPORTED,
                         "%s: the matrix \"%s\" has %lld input features, which are no multiple of %lld: this "
                         "quantization is not supported",
                         f->folder, t->name, (long long)t->in_features,
                         (long long)(t->in_features % column_step ? column_step : s->weight.group_size));
    if (s->first_row % row_step || (s->storage->transposed && t->out_features % in_word))
        return error_set(f->err, STATUS_UNSUPPORTED,
                         "%s: the matrix \"%s\" has rows from %lld to %lld, which are no multiples of %lld: this "
                         "quantization is not supported",
                         f->folder, t->name, (long long)s->first_row, (long long)(s->first_row + t->out_features),
                         (long long)row_step);
    return STATUS_OK;
}

/* The part of [rows, columns], or the other way round where the storage transposes it. */
static struct part part_of(const struct weight_source *s, const char *name, int64_t rows, int64_t columns,
                           const char *types)
{
    struct part part = {.name = name, .shape = {rows, columns}, .types = types};
    if (s->storage->transposed) part.shape[0] = columns, part.shape[1] = rows;
    return part;
}

static enum status find_data(const struct finder *f, const struct tensor *t, struct weight_source *s)
{
    const struct storage *storage = s->storage;
    const int64_t in_word = (storage->in_words ? 32 : 8) / element_bits(t);
    const int64_t rows = t->file_rows / (storage->words_of_rows ? in_word : 1);
    const int64_t columns = t->file_columns / (storage->words_of_rows ? 1 : in_word);
    const char *types = storage->data_type               ? storage->data_type
                        : storage->in_words              ? WORDS
                        : t->scheme.format == WEIGHT_FP8 ? FP8
                                                         : INT8;
    const struct part part = part_of(s, storage->data, rows, columns, types);
    return find_part(f, t, &part, &s->data);
}

/* A matrix may have one scale, [], [1] or [1, 1]; the parts of one that the file has merged one each, [parts] or
 * [parts, 1]. Sets one_scale. */
static bool is_scale_of_matrix(const struct tensor *t, const struct stored_tensor *found, struct weight_source *s)
{
    int64_t count = 1;
    for (int i = 0; i < found->num_dims; i++) count *= found->shape[i];
    if (t->scheme.group_size > 0 || found->num_dims > 2 || (found->num_dims == 2 && found->shape[1] != 1)) return false;
    if (count == 1) s->one_scale = 0;
    if (count == t->num_parts && t->merged_in_file) s->one_scale = t->part;
    return s->one_scale >= 0;
}

static enum status find_scales(const struct finder *f, const struct tensor *t, struct weight_source *s)
{
    const struct storage *storage = s->storage;
    const int64_t rows = (t->file_rows + s->weight.scale_rows - 1) / s->weight.scale_rows, one = 1;
    const int64_t groups = weight_source_groups(s).count;
    const struct part part = part_of(s, storage->scales, rows, groups, FLOATS);
    const struct stored_tensor *found = find_ending(f, t, storage->scales);
    if (!found && storage->other_scales) found = find_ending(f, t, storage->other_scales);
    if (!found) return missing_part(f, t, storage->scales);
    s->scales = found;
    const bool vector = !storage->transposed && groups == 1 && has_shape(found, part.shape, 1);
    if (!vector && !has_shape(found, part.shape, 2) && (storage->transposed || !is_scale_of_matrix(t, found, s)))
        return t->scheme.per_tensor ? check_shape(f, found, &one, 1) : check_shape(f, found, part.shape, 2);
    s->scale_dtype = storage->scale_type ? storage->scale_dtype : found->type->dtype;
    return check_type(f, found, storage->scale_type ? storage->scale_type : FLOATS);
}

static enum status find_global_scale(const struct finder *f, const struct tensor *t, struct weight_source *s)
{
    const struct part part = {s->storage->global_scale, {1}, "F32"};
    const struct stored_tensor *found;
    enum status status = find_part(f, t, &part, &found);
    if (status == STATUS_OK)
        status = tensor_file_read(f->file, found->data, sizeof s->global_scale, &s->global_scale, f->err);
    if (status != STATUS_OK || (isfinite(s->global_scale) && s->global_scale > 0)) return status;
    return error_set(f->err, STATUS_INVALID, "%s: tensor \"%s\" is %g; scales are divided by it, so it is above 0",
                     found->path, found->name, (double)s->global_scale);
}

/* ---- zero points ---- */

/* Some programs store the zero points of symmetric quantization, too. */
static enum status check_no_zero_points(const struct finder *f, const struct tensor *t, const char *name)
{
    const struct stored_tensor *found = find_ending(f, t, name);
    bool zero = true;
    if (!found) return STATUS_OK;
    enum status status = tensor_file_is_zero(f->file, found, &zero, f->err);
    if (status != STATUS_OK || zero) return status;
    return error_set(
        f->err, STATUS_INVALID,
        "%s: tensor \"%s\" has zero points other than 0, but by the \"quantization_config\" of config.json "
        "there are none",
        found->path, found->name);
}

/* compressed-tensors did not pack zero points at first: it stored each as an int8. */
static enum status check_packed_zeros(const struct finder *f, const struct stored_tensor *found)
{
    if (!found || found->type != &element_types[ELEMENT_I8]) return STATUS_OK;
    return error_set(f->err, STATUS_UNSUPPORTED,
                     "%s: tensor \"%s\" holds zero points that are not packed, as early versions of compressed-tensors "
                     "stored them; quantize the model again with a later one, or use it in bfloat16 or float16, which "
                     "quire can quantize to fp8, int8 or int4 while it loads it",
                     found->path, found->name);
}

static enum status find_zeros(const struct finder *f, const struct tensor *t, struct weight_source *s)
{
    const int64_t in_word = 32 / element_bits(t), words = (t->file_rows + in_word - 1) / in_word;
    const char *name = s->storage->zeros;
    struct part part = part_of(s, name, words, weight_source_groups(s).count, WORDS);
    part.optional = !t->scheme.has_zeros;
    if (s->storage->transposed) return find_part(f, t, &part, &s->zeros);
    if (part.optional) return check_no_zero_points(f, t, name);
    enum status status = check_packed_zeros(f, find_ending(f, t, name));
    return status == STATUS_OK ? find_part(f, t, &part, &s->zeros) : status;
}

/* ---- order of the input features ---- */

/* Each group has group_size input features, the last one perhaps fewer. */
static enum status check_groups(const struct finder *f, const struct stored_tensor *found, int64_t n,
                                int64_t group_size, const int32_t *group_of, int32_t *counts)
{
    const int64_t groups = (n + group_size - 1) / group_size;
    for (int64_t i = 0; i < n; i++) {
        if (group_of[i] < 0 || group_of[i] >= groups)
            return error_set(
                f->err, STATUS_INVALID,
                "%s: tensor \"%s\" puts input feature %lld into group %d, but the number of groups is %lld",
                found->path, found->name, (long long)i, group_of[i], (long long)groups);
        counts[group_of[i]]++;
    }
    for (int64_t g = 0; g < groups; g++) {
        const int64_t size = n - g * group_size < group_size ? n - g * group_size : group_size;
        if (counts[g] != size)
            return error_set(f->err, STATUS_INVALID,
                             "%s: tensor \"%s\" puts %d input features into group %lld, but groups have %lld",
                             found->path, found->name, counts[g], (long long)g, (long long)size);
    }
    return STATUS_OK;
}

/* compressed-tensors fills a g_idx that is not used with -1. */
static bool is_identity(const int32_t *group_of, int64_t in_features, int64_t group_size)
{
    bool same = true, unused = true;
    for (int64_t i = 0; i < in_features; i++) {
        same &= group_of[i] == i / group_size;
        unused &= group_of[i] == -1;
    }
    return same || unused;
}

/* Sets the order in which the input features of a group follow each other, unless they do so already: the part of it
 * that the weight's columns have. work: [file_columns + groups of the file] zeros. */
static enum status sort_by_group(const struct finder *f, const struct tensor *t, const struct stored_tensor *found,
                                 int32_t *work, struct weight_source *s)
{
    struct weight *w = &s->weight;
    const int64_t n = t->file_columns, group_size = t->scheme.group_size > 0 ? t->scheme.group_size : n;
    int32_t *group_of = work, *next = work + n;
    enum status status = tensor_file_read(f->file, found->data, found->bytes, group_of, f->err);
    if (status != STATUS_OK || is_identity(group_of, n, group_size)) return status;
    if (w->in_features < n && t->role == TENSOR_EXPERT_DOWN)
        return error_set(f->err, STATUS_UNSUPPORTED,
                         "%s: the matrix \"%s\" of an expert has an order of input features (GPTQ with desc_act), of "
                         "which ranks cannot have parts; use one rank, or a model that was quantized without desc_act",
                         f->folder, t->name);
    status = check_groups(f, found, n, group_size, group_of, next);
    if (status != STATUS_OK) return status;
    int32_t *order = malloc((size_t)n * sizeof *order);
    if (!order) return out_of_memory(f);
    for (int64_t g = 0; g * group_size < n; g++) next[g] = (int32_t)(g * group_size);
    for (int32_t i = 0; i < n; i++) order[next[group_of[i]]++] = i;
    s->owned = order;
    w->input_order = order + t->first_column;
    return STATUS_OK;
}

static enum status find_order(const struct finder *f, const struct tensor *t, struct weight_source *s)
{
    const struct part part = {s->storage->input_order, {t->file_columns}, WORDS, .optional = !t->scheme.ordered};
    const struct stored_tensor *found;
    enum status status = find_part(f, t, &part, &found);
    if (status != STATUS_OK || !found) return status;
    int32_t *work = calloc((size_t)(t->file_columns + weight_source_groups(s).count), sizeof *work);
    if (!work) return out_of_memory(f);
    status = sort_by_group(f, t, found, work, s);
    free(work);
    return status;
}

/* ---- */

/* Points to what the file has as struct weight wants it. */
static void use_in_place(struct weight_source *s)
{
    struct weight *w = &s->weight;
    const struct weight_part_bytes before = weight_part_bytes(w, false, s->first_row);
    const bool all_columns = s->file_columns == w->in_features;
    if (s->storage->transposed || s->run < w->out_features) return;
    if ((!s->storage->in_words || weight_is_packed(w->format)) && !w->input_order && all_columns)
        w->data = (const char *)s->data->data + before.of[WEIGHT_DATA];
    if (s->one_scale < 0 && s->scale_dtype == w->scale_dtype && (all_columns || s->scheme->group_size == 0))
        w->scales = (const char *)s->scales->data + before.of[WEIGHT_SCALES];
}

/* A tensor of all experts of a layer: [num_experts, rows, groups] of elements that are no words. */
static enum status find_of_experts(const struct finder *f, const struct tensor *t, const char *name, const char *type,
                                   int64_t group_bytes, const struct stored_tensor **out)
{
    const int64_t shape[4] = {t->file_experts, t->file_rows / t->file_experts, t->file_columns / t->scheme.group_size,
                              group_bytes};
    const struct stored_tensor *found = *out = find_ending(f, t, name);
    if (!found) return missing_part(f, t, name);
    enum status status = check_shape(f, found, shape, group_bytes > 1 ? 4 : 3);
    return status == STATUS_OK ? check_type(f, found, type) : status;
}

static enum status find_blocks(const struct finder *f, const struct tensor *t, struct weight_source *s)
{
    const struct storage *storage = s->storage;
    const int64_t group_bytes = s->weight.group_size / 2;
    enum status status = find_of_experts(f, t, storage->data, storage->data_type, group_bytes, &s->data);
    if (status == STATUS_OK) status = find_of_experts(f, t, storage->scales, storage->scale_type, 1, &s->scales);
    if (status != STATUS_OK) return status;
    s->scale_dtype = storage->scale_dtype;
    s->transposed = false;
    use_in_place(s);
    return STATUS_OK;
}

/* Whether the rows lie in one run, or in runs that are whole rows of the data and of the scales. */
static bool runs_can_be_read(const struct weight_source *s)
{
    const int64_t unit = s->weight.scale_rows;
    if (s->run == s->weight.out_features) return true;
    return !s->storage->transposed && s->first_row % unit == 0 && s->run % unit == 0 && s->step % unit == 0;
}

static enum status find_quantized(const struct finder *f, const struct tensor *t, struct weight_source *s)
{
    if (t->merged_in_file && t->num_experts > 0 && s->storage->of_experts) return find_blocks(f, t, s);
    if (t->merged_in_file && t->num_experts > 0)
        return error_set(f->err, STATUS_UNSUPPORTED,
                         "%s: \"%s\" is to hold all experts of a layer, quantized, which quire does not read; use a "
                         "model that has a tensor for each expert, or one in bfloat16 or float16, which quire can "
                         "quantize to fp8, int8 or int4 while it loads it",
                         f->folder, t->name);
    if (!runs_can_be_read(s) || s->transposed)
        return error_set(f->err, STATUS_UNSUPPORTED,
                         "%s: the matrix \"%s\" is quantized, which quire does not read where the file has its rows "
                         "%s; use the model in bfloat16 or float16",
                         f->folder, t->name,
                         s->transposed ? "as columns" : "head by head, and in words or blocks of rows");
    enum status status = find_data(f, t, s);
    if (status == STATUS_OK) status = find_scales(f, t, s);
    if (status == STATUS_OK && s->storage->global_scale) status = find_global_scale(f, t, s);
    if (status == STATUS_OK && s->storage->zeros) status = find_zeros(f, t, s);
    if (status == STATUS_OK && s->storage->input_order) status = find_order(f, t, s);
    if (status != STATUS_OK) return status;
    if (t->scheme.format == WEIGHT_INT4) s->weight.scale_dtype = s->scale_dtype;
    use_in_place(s);
    return STATUS_OK;
}

/* As a matrix that stays quantized is found, but all of it is read by rows. */
static enum status find_dequantized(const struct finder *f, const struct tensor *t, struct weight_source *s)
{
    struct tensor quantized = *t;
    quantized.scheme.is_quantized = true;
    s->stored = malloc(sizeof *s->stored);
    if (!s->stored) return out_of_memory(f);
    *s->stored = *s;
    s->stored->stored = NULL;
    s->weight = weight_of_tensor(t, DTYPE_FLOAT32);
    s->stored->weight = weight_of_tensor(&quantized, DTYPE_FLOAT32);
    const enum status status = check_sizes(f, &quantized, s->stored);
    return status == STATUS_OK ? find_quantized(f, &quantized, s->stored) : status;
}

enum status weight_source_find(const struct finder *f, const struct tensor *t, struct weight_source *s)
{
    *s = (struct weight_source){.scheme = &t->scheme,
                                .storage = &storages[t->scheme.storage],
                                .file = f->file,
                                .first_row = t->file_row,
                                .run = t->run,
                                .step = t->step,
                                .first_column = t->first_column,
                                .file_columns = t->file_columns,
                                .transposed = t->transposed && t->kind == TENSOR_MATRIX,
                                .one_scale = -1};
    if (t->scheme.dequantize) return find_dequantized(f, t, s);
    if (!t->scheme.is_quantized) return find_floats(f, t, s);
    s->weight = weight_of_tensor(t, DTYPE_FLOAT32);
    enum status status = check_sizes(f, t, s);
    if (status != STATUS_OK) return status;
    return t->scheme.quantize ? find_floats(f, t, s) : find_quantized(f, t, s);
}
