#include "model/checkpoint/safetensors.h"

#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "model/checkpoint/foreign_checkpoint.h"
#include "model/checkpoint/tensor_file_state.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the format is little-endian, and so is its data");

#define INDEX_NAME "model.safetensors.index.json"
#define SINGLE_NAME "model.safetensors"

enum { MAX_HEADER = 100000000 }; /* bytes; the limit of the reference implementation */

/* What parsing one header needs to know. */
struct header {
    struct tensor_file *set;
    const char *path;
    const uint8_t *data; /* [data_bytes] what follows the header */
    uint64_t data_bytes;
    struct error *err;
};

static enum status out_of_memory(const char *path, struct error *err)
{
    return error_set(err, STATUS_OUT_OF_MEMORY, "%s: out of memory reading the header", path);
}

/* Every message about one tensor: "file: tensor "name": what". */
static enum status bad_tensor(const struct header *h, const char *name, enum status status, const char *what)
{
    struct shown shown = show_string(name);
    return error_set(h->err, status, "%s: tensor \"%s\": %s", h->path, shown.text, what);
}

static enum status parse_dtype(const struct header *h, const char *name, const json_t *info,
                               struct stored_tensor *tensor)
{
    const json_t *value = json_object_get(info, "dtype");
    if (!json_is_string(value))
        return bad_tensor(h, name, STATUS_INVALID, "\"dtype\" must be a string such as \"BF16\"");
    for (int i = 0; i < NUM_ELEMENTS; i++)
        if (strcmp(json_string_value(value), element_types[i].name) == 0) {
            tensor->type = &element_types[i];
            return STATUS_OK;
        }
    struct shown shown = show_string(name), found = show_string(json_string_value(value));
    return error_set(h->err, STATUS_UNSUPPORTED,
                     "%s: tensor \"%s\": dtype \"%s\" is not one that quire knows (BOOL, integers, F8_E4M3, F8_E5M2, "
                     "F16, BF16, F32, F64)",
                     h->path, shown.text, found.text);
}

static enum status parse_shape(const struct header *h, const char *name, const json_t *info,
                               struct stored_tensor *tensor)
{
    const json_t *value = json_object_get(info, "shape");
    if (!json_is_array(value)) return bad_tensor(h, name, STATUS_INVALID, "\"shape\" must be an array of integers");
    if (json_array_size(value) > TENSOR_FILE_MAX_DIMS)
        return bad_tensor(h, name, STATUS_UNSUPPORTED, "more than 8 dimensions");
    tensor->num_dims = (int)json_array_size(value);
    uint64_t bytes = (uint64_t)tensor->type->bytes;
    for (int i = 0; i < tensor->num_dims; i++) {
        const json_t *dim = json_array_get(value, (size_t)i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return bad_tensor(h, name, STATUS_INVALID, "\"shape\" must hold integers of 64 bits that are not negative");
        tensor->shape[i] = json_integer_value(dim);
        if (__builtin_mul_overflow(bytes, (uint64_t)tensor->shape[i], &bytes) || bytes > INT64_MAX)
            return bad_tensor(h, name, STATUS_INVALID, "\"shape\" gives more bytes than 64 bits can count");
    }
    tensor->bytes = bytes;
    return STATUS_OK;
}

static enum status parse_span(const struct header *h, const char *name, const json_t *info,
                              struct stored_tensor *tensor)
{
    const json_t *value = json_object_get(info, "data_offsets");
    const json_t *first = json_array_get(value, 0), *last = json_array_get(value, 1);
    if (!json_is_array(value) || json_array_size(value) != 2 || !json_is_integer(first) || !json_is_integer(last))
        return bad_tensor(h, name, STATUS_INVALID, "\"data_offsets\" must be an array of two integers of 64 bits");
    const int64_t begin = json_integer_value(first), end = json_integer_value(last);
    struct shown shown = show_string(name);
    if (begin < 0 || end < begin)
        return error_set(h->err, STATUS_INVALID, "%s: tensor \"%s\": data_offsets [%lld, %lld] are not a span", h->path,
                         shown.text, (long long)begin, (long long)end);
    if ((uint64_t)end > h->data_bytes)
        return error_set(h->err, STATUS_INVALID,
                         "%s: tensor \"%s\": data_offsets [%lld, %lld] end beyond the file, which holds %llu bytes of "
                         "data; was the download cut short?",
                         h->path, shown.text, (long long)begin, (long long)end, (unsigned long long)h->data_bytes);
    if ((uint64_t)(end - begin) != tensor->bytes)
        return error_set(h->err, STATUS_INVALID,
                         "%s: tensor \"%s\": dtype and shape need %llu bytes, but data_offsets [%lld, %lld] span %lld",
                         h->path, shown.text, (unsigned long long)tensor->bytes, (long long)begin, (long long)end,
                         (long long)(end - begin));
    tensor->data = h->data + begin;
    return STATUS_OK;
}

static enum status check_metadata(const struct header *h, json_t *metadata)
{
    if (!json_is_map(metadata))
        return error_set(h->err, STATUS_INVALID, "%s: \"__metadata__\" must be an object of strings", h->path);
    const char *key;
    json_t *value;
    json_object_foreach(metadata, key, value)
    {
        if (json_is_string(value)) continue;
        struct shown shown = show_string(key);
        return error_set(h->err, STATUS_INVALID, "%s: \"__metadata__\" must hold strings, but \"%s\" is not one",
                         h->path, shown.text);
    }
    return STATUS_OK;
}

static enum status parse_tensor(const struct header *h, const char *name, const json_t *info)
{
    struct tensor_file *set = h->set;
    if (!json_is_map(info))
        return bad_tensor(h, name, STATUS_INVALID, "expected an object with dtype, shape and data_offsets");
    struct stored_tensor tensor = {.path = h->path};
    enum status status = parse_dtype(h, name, info, &tensor);
    if (status == STATUS_OK) status = parse_shape(h, name, info, &tensor);
    if (status == STATUS_OK) status = parse_span(h, name, info, &tensor);
    if (status != STATUS_OK) return status;
    if (!array_reserve(&set->tensors, &set->tensors_capacity, set->num_tensors + 1, sizeof *set->tensors))
        return out_of_memory(h->path, h->err);
    tensor.name = strdup(name);
    if (!tensor.name) return out_of_memory(h->path, h->err);
    set->tensors[set->num_tensors++] = tensor;
    set->total_bytes += tensor.bytes; /* spans are disjoint parts of files: the sum cannot overflow */
    return STATUS_OK;
}

/* By start, then by end: an empty tensor comes before the one that starts where it lies. */
static int compare_spans(const void *a, const void *b)
{
    const struct stored_tensor *x = a, *y = b;
    const uintptr_t xs = (uintptr_t)x->data, ys = (uintptr_t)y->data;
    if (xs != ys) return xs < ys ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* The tensors [first, num_tensors), just parsed, must tile the data. */
static enum status check_tiling(const struct header *h, size_t first)
{
    struct tensor_file *set = h->set;
    if (set->num_tensors > first)
        qsort(set->tensors + first, set->num_tensors - first, sizeof *set->tensors, compare_spans);
    uint64_t reached = 0;
    for (size_t i = first; i < set->num_tensors; i++) {
        const struct stored_tensor *t = &set->tensors[i];
        const uint64_t begin = (uint64_t)((const uint8_t *)t->data - h->data);
        if (begin != reached) {
            struct shown shown = show_string(t->name);
            return error_set(
                h->err, STATUS_INVALID,
                "%s: tensor \"%s\" starts at byte %llu of the data, but the tensors before it end at %llu: "
                "the format allows no %s",
                h->path, shown.text, (unsigned long long)begin, (unsigned long long)reached,
                begin < reached ? "overlap" : "gap");
        }
        reached = begin + t->bytes;
    }
    if (reached == h->data_bytes) return STATUS_OK;
    return error_set(h->err, STATUS_INVALID,
                     "%s: the tensors end at byte %llu of the data, but the file has %llu bytes of data: the format "
                     "allows none left over",
                     h->path, (unsigned long long)reached, (unsigned long long)h->data_bytes);
}

/* A file may put its data at any byte; C may not read a float there. */
static enum status align_tensors(const struct header *h, size_t first)
{
    struct tensor_file *set = h->set;
    for (size_t i = first; i < set->num_tensors; i++) {
        struct stored_tensor *t = &set->tensors[i];
        if ((uintptr_t)t->data % (uintptr_t)t->type->bytes == 0) continue;
        void *copy = NULL;
        if (!array_reserve(&set->copies, &set->copies_capacity, set->num_copies + 1, sizeof *set->copies) ||
            posix_memalign(&copy, 64, t->bytes ? t->bytes : 64) != 0)
            return error_set(h->err, STATUS_OUT_OF_MEMORY,
                             "%s: out of memory for an aligned copy of tensor \"%s\" (%llu bytes)", h->path,
                             show_string(t->name).text, (unsigned long long)t->bytes);
        memcpy(copy, t->data, t->bytes);
        set->copies[set->num_copies++] = copy;
        t->data = copy;
    }
    return STATUS_OK;
}

/* The header's length, its two ends, and where it leaves the data. *text is [*length] without the padding. */
static enum status locate_header(struct header *h, const struct mapped_file *map, const char **text, size_t *length)
{
    uint64_t n = 0;
    if (map->size < 8)
        return error_set(h->err, STATUS_INVALID,
                         "%s: %llu bytes are too few for a safetensors file, which starts with an 8-byte header length",
                         h->path, (unsigned long long)map->size);
    memcpy(&n, map->data, 8);
    enum status status = file_refuse_lfs_pointer(h->path, map->data, map->size, h->err);
    if (status != STATUS_OK) return status;
    if (n > MAX_HEADER)
        return error_set(h->err, STATUS_INVALID,
                         "%s: the header length %llu is more than the format's 100 MB; is this a safetensors file?",
                         h->path, (unsigned long long)n);
    if (n > map->size - 8)
        return error_set(h->err, STATUS_INVALID,
                         "%s: the header length %llu goes beyond the file of %llu bytes; was the download cut short?",
                         h->path, (unsigned long long)n, (unsigned long long)map->size);
    h->data = map->data + 8 + n;
    h->data_bytes = map->size - 8 - n;
    *text = (const char *)map->data + 8;
    while (n > 0 && (*text)[n - 1] == ' ') n--;
    *length = (size_t)n;
    if (n < 2 || (*text)[0] != '{')
        return error_set(h->err, STATUS_INVALID, "%s: the header must start with '{'; is this a safetensors file?",
                         h->path);
    if ((*text)[n - 1] != '}')
        return error_set(h->err, STATUS_INVALID, "%s: the header must end with '}', padded with nothing but spaces",
                         h->path);
    return STATUS_OK;
}

static enum status parse_entries(const struct header *h, json_t *root)
{
    const char *name;
    json_t *info;
    json_object_foreach(root, name, info)
    {
        enum status status = strcmp(name, "__metadata__") == 0 ? check_metadata(h, info) : parse_tensor(h, name, info);
        if (status != STATUS_OK) return status;
    }
    return STATUS_OK;
}

static enum status parse_file(struct tensor_file *set, const struct tensor_source *source, struct error *err)
{
    struct header h = {.set = set, .path = source->path, .err = err};
    const size_t first = set->num_tensors;
    const char *text = NULL;
    size_t length = 0;
    enum status status = locate_header(&h, &source->map, &text, &length);
    if (status != STATUS_OK) return status;
    json_t *root;
    status = json_object_parse(text, length, JSON_REJECT_DUPLICATES, h.path, &root, err);
    if (status != STATUS_OK) return status;
    status = parse_entries(&h, root);
    json_decref(root);
    if (status == STATUS_OK) status = check_tiling(&h, first);
    if (status == STATUS_OK) status = align_tensors(&h, first);
    return status;
}

enum status safetensors_add_file(struct tensor_file *set, const char *path, struct error *err)
{
    if (!array_reserve(&set->sources, &set->sources_capacity, set->num_sources + 1, sizeof *set->sources))
        return out_of_memory(path, err);
    struct tensor_source source = {.path = strdup(path)};
    if (!source.path) return out_of_memory(path, err);
    enum status status = mapped_file_open(path, &source.map, err);
    set->sources[set->num_sources++] = source;
    return status == STATUS_OK ? parse_file(set, &source, err) : status;
}

/* --- An index and its files --- */

/* A name that could lead out of the folder is refused, not resolved. */
static bool plain_file_name(const char *name)
{
    return *name && !strchr(name, '/') && strcmp(name, ".") != 0 && !strstr(name, "..");
}

static int compare_strings(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;
    return strcmp(*x, *y);
}

/* The distinct file names of a weight map, sorted: *names is [*count], and its strings belong to the map. */
static enum status collect_files(const char *index_path, json_t *map, const char ***names, size_t *count,
                                 struct error *err)
{
    *count = 0;
    *names = malloc((json_object_size(map) + 1) * sizeof **names);
    if (!*names) return out_of_memory(index_path, err);
    const char *tensor;
    json_t *value;
    size_t n = 0;
    json_object_foreach(map, tensor, value)
    {
        const char *name = json_string_value(value);
        if (!json_is_text(value))
            return error_set(err, STATUS_INVALID, "%s: weight_map: tensor \"%s\": expected a file name, found %s",
                             index_path, show_string(tensor).text, show_value(value).text);
        if (!plain_file_name(name))
            return error_set(err, STATUS_INVALID,
                             "%s: weight_map: tensor \"%s\": \"%s\" is not the plain name of a file in the same folder",
                             index_path, show_string(tensor).text, show_string(name).text);
        (*names)[n++] = name;
    }
    qsort(*names, n, sizeof **names, compare_strings);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || strcmp((*names)[i], (*names)[i - 1]) != 0) (*names)[(*count)++] = (*names)[i];
    return STATUS_OK;
}

static enum status add_files(struct tensor_file *set, const char *folder, const char *index_path, const char **names,
                             size_t count, struct error *err)
{
    for (size_t i = 0; i < count; i++) {
        char path[PATH_MAX];
        if (!path_join(path, sizeof path, folder, names[i]))
            return error_set(err, STATUS_INVALID, "%s: weight_map: the file name \"%s\" is too long", index_path,
                             show_string(names[i]).text);
        if (!file_exists(path))
            return error_set(err, STATUS_IO, "%s: weight_map names %s, which is not there; was the download complete?",
                             index_path, show_string(names[i]).text);
        enum status status = safetensors_add_file(set, path, err);
        if (status != STATUS_OK) return status;
    }
    return STATUS_OK;
}

static enum status add_map(struct tensor_file *set, const char *folder, const char *index_path, json_t *map,
                           struct error *err)
{
    if (!json_is_map(map) || json_object_size(map) == 0)
        return error_set(err, STATUS_INVALID, "%s: \"weight_map\" must be an object of tensor and file names",
                         index_path);
    const char **names = NULL;
    size_t count;
    enum status status = collect_files(index_path, map, &names, &count, err);
    if (status == STATUS_OK) status = add_files(set, folder, index_path, names, count, err);
    free(names);
    return status;
}

static enum status add_index(struct tensor_file *set, const char *folder, const char *index_path, struct error *err)
{
    json_t *root;
    enum status status = json_object_read(index_path, &root, err);
    if (status != STATUS_OK) return status;
    status = add_map(set, folder, index_path, json_object_get(root, "weight_map"), err);
    json_decref(root);
    return status;
}

enum status safetensors_add_folder(struct tensor_file *set, const char *folder, struct error *err)
{
    char path[PATH_MAX], index_path[PATH_MAX];
    if (!folder_exists(folder)) return error_set(err, STATUS_IO, "%s: no such folder", folder);
    if (!path_join(path, sizeof path, folder, SINGLE_NAME) ||
        !path_join(index_path, sizeof index_path, folder, INDEX_NAME))
        return error_set(err, STATUS_INVALID, "%s: the path is too long", folder);
    bool found;
    enum status status = file_find(path, &found, err);
    if (status != STATUS_OK) return status;
    if (found) return safetensors_add_file(set, path, err);
    status = file_find(index_path, &found, err);
    if (status != STATUS_OK) return status;
    if (found) return add_index(set, folder, index_path, err);
    return foreign_checkpoint_refuse(folder, SINGLE_NAME " or " INDEX_NAME, err);
}
