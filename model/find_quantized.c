/* Quantized matrices in the files of a checkpoint: which tensors hold one follows from its weight_storage. */
#include <stdlib.h>
#include <string.h>

#include "model/find_weights.h"
#include "model/checkpoint/quantize.h"

/* The types that a tensor may have: floats, or the one of that name. */
static const char FLOATS[] = "F32, F16 or BF16", WORDS[] = "I32", FP8[] = "F8_E4M3", INT8[] = "I8";

/* Of the tensors that a matrix consists of: what they hold. */
struct part {
    const char *name; /* what the file has in place of ".weight" */
    int64_t shape[2]; /* shape[1] 0: a vector */
    const char *dtype;
    bool optional;
};

static int64_t file_rows(const struct tensor *t)
{
    return t->merged_in_file ? t->merged_rows : t->out_features;
}

static int element_bits(const struct tensor *t)
{
    return t->scheme.format == WEIGHT_INT4 ? 4 : 8;
}

/* ---- checks ---- */

static bool is_float(const struct stored_tensor *found)
{
    enum dtype dtype;
    return element_type_to_dtype(found->dtype, &dtype) == 0 && dtype_size(dtype) > 1;
}

static enum status missing(const struct finder *f, const struct tensor *t, const char *name)
{
    const struct stored_tensor *floats = find_by_name(f->weights->file, t->name);
    return error_set(f->err, STATUS_INVALID,
                     "%s: there is no tensor \"%s\" in the safetensors files; by the \"quantization_config\" of "
                     "config.json this matrix is quantized%s",
                     f->folder, tensor_name_ending(t, name).text,
                     floats && is_float(floats) ? ", but the files have it as floats" : "");
}

static enum status check_dtype(const struct finder *f, const struct stored_tensor *found, const char *expected)
{
    const char *name = element_type_name(found->dtype);
    if (expected == FLOATS ? is_float(found) : strcmp(name, expected) == 0) return STATUS_OK;
    return error_set(f->err, STATUS_INVALID,
                     "%s: tensor \"%s\" has dtype %s, but by the \"quantization_config\" of config.json it is %s",
                     found->path, found->name, name, expected);
}

/* *out is NULL if the file does not have an optional part. */
static enum status find_part(struct finder *f, const struct tensor *t, const struct part *part,
                             const struct stored_tensor **out)
{
    const struct stored_tensor *found = find_by_name(f->weights->file, tensor_name_ending(t, part->name).text);
    const int num_dims = part->shape[1] > 0 ? 2 : 1;
    *out = found;
    if (!found) return part->optional ? STATUS_OK : missing(f, t, part->name);
    mark_used(f, found);
    enum status status = check_shape(f, found, part->shape, num_dims);
    return status == STATUS_OK ? check_dtype(f, found, part->dtype) : status;
}

/* Sizes that struct weight cannot describe, or that do not fill the words of the file. */
static enum status check_sizes(const struct finder *f, const struct tensor *t, const struct weight_source *s)
{
    const struct weight_scheme *c = &t->scheme;
    const int in_word = 32 / element_bits(t);
    const bool words_of_rows =
        c->storage == STORED_AWQ || ((c->storage == STORED_GPTQ || c->has_zeros) && !c->quantize);
    const int64_t row_step = c->blocks ? c->group_size : words_of_rows ? in_word : 1;
    const int64_t column_step = c->storage == STORED_ROWS && c->format != WEIGHT_INT4 ? 1 : in_word;
    if (t->in_features % column_step || (c->format == WEIGHT_INT4 && t->in_features % s->weight.group_size))
        return error_set(f->err, STATUS_UNSUPPORTED,
                         "%s: the matrix \"%s\" has %lld input features, which are no multiple of %lld: this "
                         "quantization is not supported",
                         f->folder, t->name, (long long)t->in_features,
                         (long long)(t->in_features % column_step ? column_step : s->weight.group_size));
    if (s->first_row % row_step || (words_of_rows && c->storage != STORED_PACKED && t->out_features % in_word))
        return error_set(f->err, STATUS_UNSUPPORTED,
                         "%s: the matrix \"%s\" has rows from %lld to %lld, which are no multiples of %lld: this "
                         "quantization is not supported",
                         f->folder, t->name, (long long)s->first_row, (long long)(s->first_row + t->out_features),
                         (long long)row_step);
    return STATUS_OK;
}

/* ---- data ---- */

static enum status find_data(struct finder *f, const struct tensor *t, struct weight_source *s)
{
    const int64_t rows = file_rows(t), columns = t->in_features, in_word = 32 / element_bits(t);
    struct part part = {.name = ".weight", .shape = {rows, columns}};
    switch (t->scheme.storage) {
    case STORED_ROWS:
        part.dtype = t->scheme.format == WEIGHT_FP8 ? FP8 : INT8;
        break;
    case STORED_PACKED:
        part = (struct part){.name = ".weight_packed", .shape = {rows, columns / in_word}, .dtype = WORDS};
        break;
    case STORED_GPTQ:
        part = (struct part){.name = ".qweight", .shape = {columns / in_word, rows}, .dtype = WORDS};
        break;
    case STORED_AWQ:
        part = (struct part){.name = ".qweight", .shape = {columns, rows / in_word}, .dtype = WORDS};
        break;
    }
    return find_part(f, t, &part, &s->data);
}

/* ---- scales ---- */

/* Of a whole matrix: [], [1] or [1, 1]; of the parts of one that the file has merged: [parts] or [parts, 1]. Sets
 * one_scale. */
static bool is_scale_of_matrix(const struct tensor *t, const struct stored_tensor *found, struct weight_source *s)
{
    int64_t count = 1;
    for (int i = 0; i < found->num_dims; i++) count *= found->shape[i];
    if (t->scheme.group_size > 0 || found->num_dims > 2 || (found->num_dims == 2 && found->shape[1] != 1)) return false;
    if (count == 1) s->one_scale = 0;
    if (count == t->num_parts && t->merged_in_file) s->one_scale = t->part;
    return s->one_scale >= 0;
}

static enum status find_scales(struct finder *f, const struct tensor *t, struct weight_source *s)
{
    const bool transposed = t->scheme.storage == STORED_GPTQ || t->scheme.storage == STORED_AWQ;
    const char *name = transposed ? ".scales" : ".weight_scale";
    const int64_t rows = (file_rows(t) + s->weight.scale_rows - 1) / s->weight.scale_rows;
    const int64_t groups = weight_groups(&s->weight);
    const int64_t shape[2] = {transposed ? groups : rows, transposed ? rows : groups}, one = 1;
    const struct stored_tensor *found = find_by_name(f->weights->file, tensor_name_ending(t, name).text);
    if (!found && !transposed) found = find_by_name(f->weights->file, tensor_name_ending(t, ".weight_scale_inv").text);
    if (!found) return missing(f, t, name);
    mark_used(f, found);
    s->scales = found;
    const bool vector = !transposed && groups == 1 && has_shape(found, shape, 1);
    if (!vector && !has_shape(found, shape, 2) && (transposed || !is_scale_of_matrix(t, found, s)))
        return t->scheme.per_tensor ? check_shape(f, found, &one, 1) : check_shape(f, found, shape, 2);
    return check_dtype(f, found, FLOATS);
}

/* ---- zero points ---- */

enum status all_bytes_zero(const struct finder *f, const struct stored_tensor *t, bool *zero)
{
    char *bytes = malloc(t->bytes + 1);
    if (!bytes) return error_set(f->err, STATUS_OUT_OF_MEMORY, "out of host memory for the weights");
    enum status status = tensor_file_read(f->weights->file, t->data, t->bytes, bytes, f->err);
    *zero = true;
    for (uint64_t i = 0; i < t->bytes && status == STATUS_OK; i++) *zero &= bytes[i] == 0;
    free(bytes);
    return status;
}

/* Some programs store the zero points of symmetric quantization, too. */
static enum status check_no_zero_points(struct finder *f, const struct tensor *t)
{
    const struct stored_tensor *found =
        find_by_name(f->weights->file, tensor_name_ending(t, ".weight_zero_point").text);
    bool zero = true;
    if (!found) return STATUS_OK;
    mark_used(f, found);
    enum status status = all_bytes_zero(f, found, &zero);
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
    if (!found || found->dtype != ELEMENT_I8) return STATUS_OK;
    return error_set(f->err, STATUS_UNSUPPORTED,
                     "%s: tensor \"%s\" holds zero points that are not packed, as early versions of compressed-tensors "
                     "stored them; quantize the model again with a later one, or use it in bfloat16 or float16, which "
                     "quire can quantize to fp8, int8 or int4 while it loads it",
                     found->path, found->name);
}

static enum status find_zeros(struct finder *f, const struct tensor *t, struct weight_source *s)
{
    const int64_t rows = file_rows(t), groups = weight_groups(&s->weight), in_word = 32 / element_bits(t);
    struct part part = {.name = ".qzeros", .dtype = WORDS, .optional = !s->has_zeros};
    if (t->scheme.storage == STORED_GPTQ || t->scheme.storage == STORED_AWQ) {
        part.shape[0] = groups, part.shape[1] = rows / in_word;
        return find_part(f, t, &part, &s->zeros);
    }
    if (!s->has_zeros) return check_no_zero_points(f, t);
    part.name = ".weight_zero_point";
    part.shape[0] = (rows + in_word - 1) / in_word, part.shape[1] = groups;
    enum status status = check_packed_zeros(f, find_by_name(f->weights->file, tensor_name_ending(t, part.name).text));
    return status == STATUS_OK ? find_part(f, t, &part, &s->zeros) : status;
}

/* ---- order of the input features ---- */

/* Each group has group_size input features, the last one perhaps fewer. */
static enum status check_groups(const struct finder *f, const struct stored_tensor *found, const struct weight *w,
                                const int32_t *group_of, int32_t *counts)
{
    const int64_t groups = weight_groups(w), n = w->in_features;
    for (int64_t i = 0; i < n; i++) {
        if (group_of[i] < 0 || group_of[i] >= groups)
            return error_set(
                f->err, STATUS_INVALID,
                "%s: tensor \"%s\" puts input feature %lld into group %d, but the number of groups is %lld",
                found->path, found->name, (long long)i, group_of[i], (long long)groups);
        counts[group_of[i]]++;
    }
    for (int64_t g = 0; g < groups; g++) {
        const int64_t size = n - g * w->group_size < w->group_size ? n - g * w->group_size : w->group_size;
        if (counts[g] != size)
            return error_set(f->err, STATUS_INVALID,
                             "%s: tensor \"%s\" puts %d input features into group %lld, but groups have %lld",
                             found->path, found->name, counts[g], (long long)g, (long long)size);
    }
    return STATUS_OK;
}

/* compressed-tensors fills a g_idx that is not used with -1. */
static bool is_identity(const struct weight *w, const int32_t *group_of)
{
    bool same = true, unused = true;
    for (int64_t i = 0; i < w->in_features; i++) {
        same &= group_of[i] == i / w->group_size;
        unused &= group_of[i] == -1;
    }
    return same || unused;
}

/* Sets the order in which the input features of a group follow each other, unless they do so already.
 * work: [in_features + groups] zeros. */
static enum status sort_by_group(const struct finder *f, const struct stored_tensor *found, int32_t *work,
                                 struct weight_source *s)
{
    struct weight *w = &s->weight;
    const int64_t n = w->in_features;
    int32_t *group_of = work, *next = work + n;
    enum status status = tensor_file_read(f->weights->file, found->data, found->bytes, group_of, f->err);
    if (status != STATUS_OK || is_identity(w, group_of)) return status;
    status = check_groups(f, found, w, group_of, next);
    if (status != STATUS_OK) return status;
    int32_t *order = malloc((size_t)n * sizeof *order);
    if (!order) return error_set(f->err, STATUS_OUT_OF_MEMORY, "out of host memory for the weights");
    for (int64_t g = 0; g < weight_groups(w); g++) next[g] = (int32_t)(g * w->group_size);
    for (int32_t i = 0; i < n; i++) order[next[group_of[i]]++] = i;
    w->input_order = order;
    return STATUS_OK;
}

static enum status find_order(struct finder *f, const struct tensor *t, struct weight_source *s)
{
    const struct part part = {.name = t->scheme.storage == STORED_GPTQ ? ".g_idx" : ".weight_g_idx",
                              .shape = {t->in_features},
                              .dtype = WORDS,
                              .optional = !t->scheme.ordered};
    const struct stored_tensor *found;
    enum status status = find_part(f, t, &part, &found);
    if (status != STATUS_OK || !found) return status;
    int32_t *work = calloc((size_t)(t->in_features + weight_groups(&s->weight)), sizeof *work);
    if (!work) return error_set(f->err, STATUS_OUT_OF_MEMORY, "out of host memory for the weights");
    status = sort_by_group(f, found, work, s);
    free(work);
    return status;
}

/* ---- */

/* Points to what the file has as struct weight wants it. */
static void use_in_place(const struct tensor *t, struct weight_source *s)
{
    const bool packed = t->scheme.storage == STORED_PACKED, rows = t->scheme.storage == STORED_ROWS;
    struct weight *w = &s->weight;
    enum dtype stored;
    const struct weight_part_bytes before = weight_part_bytes(w, false, s->first_row);
    if ((rows || (packed && w->format == WEIGHT_INT4)) && !w->input_order)
        w->data = (const char *)s->data->data + before.data;
    element_type_to_dtype(s->scales->dtype, &stored);
    if ((rows || packed) && s->one_scale < 0 && stored == w->scale_dtype)
        w->scales = (const char *)s->scales->data + before.scales;
}

static enum status find_parts(struct finder *f, const struct tensor *t, struct weight_source *s)
{
    const struct weight_scheme *c = &t->scheme;
    enum status status = find_data(f, t, s);
    if (status == STATUS_OK) status = find_scales(f, t, s);
    if (status == STATUS_OK) status = find_zeros(f, t, s);
    if (status == STATUS_OK && (c->storage == STORED_GPTQ || c->storage == STORED_PACKED)) status = find_order(f, t, s);
    if (status != STATUS_OK) return status;
    if (c->format == WEIGHT_INT4) element_type_to_dtype(s->scales->dtype, &s->weight.scale_dtype);
    use_in_place(t, s);
    return STATUS_OK;
}

enum status find_quantized(struct finder *f, const struct tensor *t)
{
    struct model_weights *weights = f->weights;
    const struct weight_scheme *c = &t->scheme;
    struct weight_source *s = &weights->sources[t - weights->table.tensors];
    *s = (struct weight_source){.scheme = *c,
                                .weight = weight_of_scheme(t),
                                .has_zeros = c->has_zeros,
                                .file = weights->file,
                                .first_row = t->merged_in_file ? t->first_row : 0,
                                .one_scale = -1};
    enum dtype ignored;
    enum status status = check_sizes(f, t, s);
    if (status == STATUS_OK) status = c->quantize ? find_floats(f, t, &s->data, &ignored) : find_parts(f, t, s);
    if (status != STATUS_OK) return status;
    *model_weights_matrix(weights, t) = s->weight;
    weights->bytes += weight_bytes_of_parts(&s->weight, s->has_zeros);
    return STATUS_OK;
}
