#include "model/checkpoint/compressed_weight.h"

#include <stdlib.h>
#include <stdio.h>
#include <string.h>

enum { ZEROS_IN_WORD = 8, SHAPE_DIMS = 2 };

/* Whether data lies in words, as pack-quantized has it. */
static bool is_packed(const struct weight *w)
{
    return w->format == WEIGHT_INT4 || (w->format == WEIGHT_INT8 && !w->quantize_x);
}

/* ---- places ---- */

static const struct element_type *element_of(enum dtype dtype)
{
    const struct element_type *type = element_types;
    while (!type->has_dtype || type->dtype != dtype) type++;
    return type;
}

static bool place(struct tensor_layout *layout, const char *name, const char *ending, const struct element_type *type,
                  int64_t rows, int64_t columns)
{
    const int64_t shape[2] = {rows, columns};
    struct text full = {0};
    const int length = (int)(strlen(name) - strlen(".weight"));
    const bool ok = text_printf(&full, "%.*s%s", length, name, ending) &&
                    tensor_layout_add(layout, full.data, type, shape, columns > 0 ? 2 : 1);
    text_free(&full);
    return ok;
}

bool compressed_weight_place(struct tensor_layout *layout, const struct weight_source *s, const char *name)
{
    const struct weight *w = &s->weight;
    const struct storage *storage = &storages[is_packed(w) ? STORED_PACKED : STORED_ROWS];
    const struct element_type *scale = element_of(s->scheme->scale_dtype), *word = &element_types[ELEMENT_I32];
    const int64_t rows = w->out_features, groups = weight_groups(w), bytes = weight_row_bytes(w);
    if (!is_packed(w)) {
        const enum element element = w->format == WEIGHT_FP8 ? ELEMENT_F8_E4M3 : ELEMENT_I8;
        return place(layout, name, storage->data, &element_types[element], rows, bytes) &&
               place(layout, name, storage->scales, scale, rows, groups);
    }
    return place(layout, name, storage->data, word, rows, bytes / word->bytes) &&
           place(layout, name, storage->scales, scale, rows, groups) &&
           (!s->scheme->has_zeros ||
            place(layout, name, storage->zeros, word, (rows + ZEROS_IN_WORD - 1) / ZEROS_IN_WORD, groups)) &&
           place(layout, name, ".weight_shape", &element_types[ELEMENT_I64], SHAPE_DIMS, 0);
}

/* ---- rows ---- */

/* Adds a part of that size to *out and returns its memory; NULL: memory ran out. */
static void *add_part(struct compressed_rows *out, int64_t offset, int64_t bytes)
{
    struct compressed_part *part = &out->parts[out->num_parts++];
    *part = (struct compressed_part){calloc(1, (size_t)bytes), bytes, offset};
    return part->data;
}

/* zeros: [count, groups]. A word has the zero points of a group for eight output features, the first in the lowest
 * bits. */
static bool pack_zeros(const struct weight *w, int64_t first, int64_t count, const uint8_t *zeros,
                       struct compressed_rows *out)
{
    const int64_t groups = weight_groups(w), words = (count + ZEROS_IN_WORD - 1) / ZEROS_IN_WORD;
    const int64_t size = groups * (int64_t)sizeof(uint32_t);
    uint32_t *packed = add_part(out, first / ZEROS_IN_WORD * size, words * size);
    if (!packed) return false;
    for (int64_t row = 0; row < count; row++)
        for (int64_t g = 0; g < groups; g++)
            packed[row / ZEROS_IN_WORD * groups + g] |= (uint32_t)zeros[row * groups + g] << row % ZEROS_IN_WORD * 4;
    return true;
}

static bool add_shape(const struct weight *w, int64_t first, struct compressed_rows *out)
{
    const int64_t shape[SHAPE_DIMS] = {w->out_features, w->in_features};
    void *to = add_part(out, 0, first == 0 ? (int64_t)sizeof shape : 0);
    if (to && first == 0) memcpy(to, shape, sizeof shape);
    return to;
}

/* Makes INT8 what words have, whose zero is 128, and its scales, float32, numbers of the type that is stored. */
static void pack_int8(const struct weight_source *s, int64_t first, int64_t count, struct compressed_rows *out)
{
    struct compressed_part *data = &out->parts[0], *scales = &out->parts[1];
    const enum dtype dtype = s->scheme->scale_dtype;
    for (int64_t i = 0; i < data->bytes; i++) ((uint8_t *)data->data)[i] ^= 0x80;
    for (int64_t i = 0; i < count; i++) dtype_store(scales->data, dtype, i, ((const float *)scales->data)[i]);
    scales->bytes = count * dtype_size(dtype);
    scales->offset = first * dtype_size(dtype);
}

enum status compressed_weight_read(const struct weight_source *s, int64_t first, int64_t count,
                                   struct compressed_rows *out, struct error *err)
{
    const struct weight *w = &s->weight;
    const bool has_zeros = s->scheme->has_zeros;
    const struct weight_part_bytes before = weight_part_bytes(w, has_zeros, first);
    const struct weight_part_bytes bytes = weight_part_bytes(w, has_zeros, count);
    struct weight_rows rows = {{NULL}};
    *out = (struct compressed_rows){.num_parts = 0};
    rows.at[WEIGHT_DATA] = add_part(out, before.of[WEIGHT_DATA], bytes.of[WEIGHT_DATA]);
    rows.at[WEIGHT_SCALES] = add_part(out, before.of[WEIGHT_SCALES], bytes.of[WEIGHT_SCALES]);
    rows.at[WEIGHT_ZEROS] = has_zeros ? malloc((size_t)bytes.of[WEIGHT_ZEROS]) : NULL;
    bool memory = rows.at[WEIGHT_DATA] && rows.at[WEIGHT_SCALES] && (rows.at[WEIGHT_ZEROS] || !has_zeros);
    enum status status = memory ? weight_source_read(s, first, count, &rows, err) : STATUS_OK;
    const bool packed = memory && status == STATUS_OK && is_packed(w);
    if (packed && w->format == WEIGHT_INT8) pack_int8(s, first, count, out);
    if (packed && has_zeros) memory = pack_zeros(w, first, count, rows.at[WEIGHT_ZEROS], out);
    if (packed && memory) memory = add_shape(w, first, out);
    free(rows.at[WEIGHT_ZEROS]);
    return memory ? status : error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for quantizing the weights");
}

void compressed_rows_free(struct compressed_rows *rows)
{
    for (int i = 0; i < rows->num_parts; i++) free(rows->parts[i].data);
}
