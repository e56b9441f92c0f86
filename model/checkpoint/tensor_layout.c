#include "model/checkpoint/tensor_layout.h"

#include <stdlib.h>
#include <string.h>

#include "base/json.h"

enum { LENGTH_BYTES = 8, ALIGNMENT = 8, LARGEST_ELEMENT = 8 };

bool tensor_layout_add(struct tensor_layout *layout, const char *name, const struct element_type *type,
                       const int64_t *shape, int num_dims)
{
    if (!array_reserve(&layout->tensors, &layout->capacity, layout->count + 1, sizeof *layout->tensors)) return false;
    struct placed_tensor *t = &layout->tensors[layout->count];
    *t = (struct placed_tensor){
        .name = strdup(name), .type = type, .num_dims = num_dims, .bytes = (uint64_t)type->bytes};
    if (!t->name) return false;
    for (int i = 0; i < num_dims; i++) t->shape[i] = shape[i], t->bytes *= (uint64_t)shape[i];
    layout->count++;
    return true;
}

/* Offsets count from the end of the header. */
static bool add_entry(json_t *header, const struct placed_tensor *t)
{
    json_t *shape = json_array();
    for (int i = 0; i < t->num_dims; i++) json_array_append_new(shape, json_integer(t->shape[i]));
    json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", t->type->name, "shape", shape, "data_offsets",
                              (json_int_t)t->offset, (json_int_t)(t->offset + t->bytes));
    return entry && json_array_size(shape) == (size_t)t->num_dims && json_object_set_new(header, t->name, entry) == 0;
}

static bool place(struct tensor_layout *layout, json_t *header)
{
    bool ok = true;
    for (int bytes = LARGEST_ELEMENT; bytes > 0; bytes /= 2)
        for (size_t i = 0; i < layout->count; i++) {
            struct placed_tensor *t = &layout->tensors[i];
            if (t->type->bytes != bytes) continue;
            t->offset = layout->file_bytes;
            layout->file_bytes += t->bytes;
            ok = ok && add_entry(header, t);
        }
    return ok;
}

/* The header ends with spaces, so that the data begins at a multiple of the largest element. */
static bool write_head(struct text *head, const json_t *header)
{
    bool ok = text_append(head, "        ", LENGTH_BYTES) && json_append(head, header, JSON_COMPACT);
    while (ok && head->length % ALIGNMENT != 0) ok = text_append(head, " ", 1);
    const uint64_t length = head->length - LENGTH_BYTES;
    if (ok) memcpy(head->data, &length, sizeof length);
    return ok;
}

bool tensor_layout_finish(struct tensor_layout *layout)
{
    json_t *header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt"); /* transformers looks for it */
    const bool ok = header && place(layout, header) && write_head(&layout->head, header);
    json_decref(header);
    for (size_t i = 0; i < layout->count; i++) layout->tensors[i].offset += layout->head.length;
    layout->file_bytes += layout->head.length;
    return ok;
}

void tensor_layout_free(struct tensor_layout *layout)
{
    for (size_t i = 0; i < layout->count; i++) free(layout->tensors[i].name);
    free(layout->tensors);
    text_free(&layout->head);
    *layout = (struct tensor_layout){0};
}
