#include "model/checkpoint/tensor_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "model/checkpoint/safetensors.h"
#include "model/checkpoint/tensor_file_state.h"

const struct element_type element_types[NUM_ELEMENTS] = {
    [ELEMENT_BOOL] = {"BOOL", 1},
    [ELEMENT_U8] = {"U8", 1},
    [ELEMENT_I8] = {"I8", 1},
    [ELEMENT_F8_E5M2] = {"F8_E5M2", 1, true, DTYPE_FP8_E5M2},
    [ELEMENT_F8_E4M3] = {"F8_E4M3", 1, true, DTYPE_FP8_E4M3},
    [ELEMENT_I16] = {"I16", 2},
    [ELEMENT_U16] = {"U16", 2},
    [ELEMENT_F16] = {"F16", 2, true, DTYPE_FLOAT16},
    [ELEMENT_BF16] = {"BF16", 2, true, DTYPE_BFLOAT16},
    [ELEMENT_I32] = {"I32", 4},
    [ELEMENT_U32] = {"U32", 4},
    [ELEMENT_F32] = {"F32", 4, true, DTYPE_FLOAT32},
    [ELEMENT_F64] = {"F64", 8},
    [ELEMENT_I64] = {"I64", 8},
    [ELEMENT_U64] = {"U64", 8},
};

static enum status out_of_memory(const char *path, struct error *err)
{
    return error_set(err, STATUS_OUT_OF_MEMORY, "%s: out of memory reading the header", path);
}

static int compare_names(const void *a, const void *b)
{
    const struct stored_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

/* Once all files are read: the array no longer moves. Within a file JSON_REJECT_DUPLICATES saw to unique names. */
static enum status sort_names(struct tensor_file *set, struct error *err)
{
    set->by_name = malloc((set->num_tensors + 1) * sizeof *set->by_name);
    if (!set->by_name) return out_of_memory(set->sources[0].path, err);
    for (size_t i = 0; i < set->num_tensors; i++) set->by_name[i] = &set->tensors[i];
    qsort(set->by_name, set->num_tensors, sizeof *set->by_name, compare_names);
    for (size_t i = 1; i < set->num_tensors; i++) {
        const struct stored_tensor *a = set->by_name[i - 1], *b = set->by_name[i];
        if (strcmp(a->name, b->name) != 0) continue;
        return error_set(err, STATUS_INVALID, "%s: tensor \"%s\" lies in %s too; each must be in one file", a->path,
                         show_string(a->name).text, b->path);
    }
    return STATUS_OK;
}

/* Opens what `add` adds: a file or a folder. */
static enum status open_with(enum status (*add)(struct tensor_file *, const char *, struct error *), const char *path,
                             struct tensor_file **out, struct error *err)
{
    struct tensor_file *set = calloc(1, sizeof *set);
    *out = NULL;
    if (!set) return out_of_memory(path, err);
    enum status status = add(set, path, err);
    if (status == STATUS_OK) status = sort_names(set, err);
    if (status == STATUS_OK)
        *out = set;
    else
        tensor_file_close(set);
    return status;
}

enum status tensor_file_open(const char *folder, struct tensor_file **out, struct error *err)
{
    return open_with(safetensors_add_folder, folder, out, err);
}

enum status tensor_file_open_path(const char *path, struct tensor_file **out, struct error *err)
{
    return open_with(safetensors_add_file, path, out, err);
}

void tensor_file_close(struct tensor_file *f)
{
    if (!f) return;
    for (size_t i = 0; i < f->num_tensors; i++) free((char *)f->tensors[i].name);
    for (size_t i = 0; i < f->num_copies; i++) free(f->copies[i]);
    for (size_t i = 0; i < f->num_sources; i++) {
        mapped_file_close(&f->sources[i].map);
        free(f->sources[i].path);
    }
    free(f->by_name);
    free(f->copies);
    free(f->tensors);
    free(f->sources);
    free(f);
}

int64_t tensor_file_count(const struct tensor_file *f)
{
    return (int64_t)f->num_tensors;
}

const struct stored_tensor *tensor_file_at(const struct tensor_file *f, int64_t index)
{
    return &f->tensors[index];
}

int64_t tensor_file_index(const struct tensor_file *f, const struct stored_tensor *t)
{
    return t - f->tensors;
}

const struct stored_tensor *tensor_file_find(const struct tensor_file *f, const char *name)
{
    size_t low = 0, high = f->num_tensors;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const int order = strcmp(name, f->by_name[middle]->name);
        if (order == 0) return f->by_name[middle];
        if (order < 0) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return NULL;
}

uint64_t tensor_file_bytes(const struct tensor_file *f)
{
    return f->total_bytes;
}

enum status tensor_file_check_unchanged(const struct tensor_file *f, struct error *err)
{
    for (size_t i = 0; i < f->num_sources; i++)
        if (mapped_file_changed(&f->sources[i].map))
            return error_set(err, STATUS_IO,
                             "%s: the file was changed while its weights were in use; start again, once it is complete",
                             f->sources[i].path);
    return STATUS_OK;
}

enum status tensor_file_read(const struct tensor_file *f, const void *data, uint64_t bytes, void *out,
                             struct error *err)
{
    for (size_t i = 0; i < f->num_sources; i++) {
        const struct mapped_file *map = &f->sources[i].map;
        const uintptr_t offset = (uintptr_t)data - (uintptr_t)map->data;
        if (offset >= map->size) continue;
        if (mapped_file_read(map, offset, out, bytes)) return STATUS_OK;
        return error_set(err, STATUS_IO, "%s: cannot read %llu bytes at %llu: %s", f->sources[i].path,
                         (unsigned long long)bytes, (unsigned long long)offset,
                         errno ? strerror(errno) : "the file has become shorter");
    }
    memcpy(out, data, bytes); /* an aligned copy, or what belongs to no file */
    return STATUS_OK;
}

enum status tensor_file_read_strips(const struct tensor_file *f, const struct stored_tensor *t, int64_t first,
                                    int64_t count, int64_t offset, int64_t bytes, void *out, struct error *err)
{
    const int64_t stored = (t->num_dims > 1 ? t->shape[t->num_dims - 1] : 1) * t->type->bytes;
    const char *from = (const char *)t->data + first * stored + offset;
    enum status status = STATUS_OK;
    if (bytes == stored) return tensor_file_read(f, from, (uint64_t)(count * bytes), out, err);
    for (int64_t i = 0; i < count && status == STATUS_OK; i++)
        status = tensor_file_read(f, from + i * stored, (uint64_t)bytes, (char *)out + i * bytes, err);
    return status;
}

enum status tensor_file_is_zero(const struct tensor_file *f, const struct stored_tensor *t, bool *zero,
                                struct error *err)
{
    char *bytes = malloc(t->bytes + 1);
    if (!bytes) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the weights");
    enum status status = tensor_file_read(f, t->data, t->bytes, bytes, err);
    *zero = true;
    for (uint64_t i = 0; i < t->bytes && status == STATUS_OK; i++) *zero &= bytes[i] == 0;
    free(bytes);
    return status;
}
