#include "model/weight_parts.h"

struct weight_rows weight_parts(const struct weight *w)
{
    return (struct weight_rows){{(void *)w->data, (void *)w->scales, (void *)w->zeros}};
}

void weight_set_parts(struct weight *w, const struct weight_rows *parts)
{
    w->data = parts->at[WEIGHT_DATA];
    w->scales = parts->at[WEIGHT_SCALES];
    w->zeros = parts->at[WEIGHT_ZEROS];
}

struct weight_part_bytes weight_part_bytes(const struct weight *w, bool has_zeros, int64_t rows)
{
    struct weight_part_bytes bytes = {{rows * weight_row_bytes(w)}};
    if (!weight_is_quantized(w)) return bytes;
    const int64_t groups = weight_groups(w), scale_rows = (rows + w->scale_rows - 1) / w->scale_rows;
    bytes.of[WEIGHT_SCALES] = scale_rows * groups * dtype_size(w->scale_dtype);
    if (has_zeros) bytes.of[WEIGHT_ZEROS] = rows * groups;
    return bytes;
}

struct weight_rows weight_rows_at(const struct weight *w, const struct weight_rows *parts, int64_t first)
{
    const struct weight_part_bytes skipped = weight_part_bytes(w, true, first);
    struct weight_rows rows = *parts;
    for (int i = 0; i < NUM_WEIGHT_PARTS; i++)
        if (rows.at[i]) rows.at[i] = (char *)rows.at[i] + skipped.of[i];
    return rows;
}

struct weight weight_of_tensor(const struct tensor *t, enum dtype floats)
{
    const struct weight_scheme *s = &t->scheme;
    struct weight w = {.format = weight_format_of(floats),
                       .out_features = t->out_features,
                       .in_features = t->kind == TENSOR_MATRIX ? t->in_features : 1,
                       .is_share = t->is_share};
    if (!s->is_quantized) return w;
    w.format = s->format;
    w.scale_dtype = s->format == WEIGHT_MXFP4 && s->storage != STORED_NVFP4 ? DTYPE_E8M0
                    : s->format != WEIGHT_INT4                              ? DTYPE_FLOAT32
                    : s->quantize                                           ? s->scale_dtype
                                                                            : DTYPE_FLOAT16;
    w.scale_rows = s->blocks ? s->group_size : 1;
    w.group_size = s->group_size > 0 ? s->group_size : t->in_features;
    w.quantize_x = s->quantize_x;
    return w;
}

bool weight_is_ordered(const struct tensor *t)
{
    const int64_t group = t->scheme.group_size;
    return t->scheme.is_quantized && t->scheme.ordered && group > 0 && group < t->file_columns;
}
