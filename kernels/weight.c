#include <assert.h>

#include "kernels/backend.h"
#include "kernels/fp8.h"

static const enum dtype element_types[] = {
    [WEIGHT_FLOAT32] = DTYPE_FLOAT32,
    [WEIGHT_FLOAT16] = DTYPE_FLOAT16,
    [WEIGHT_BFLOAT16] = DTYPE_BFLOAT16,
    [WEIGHT_FP8] = DTYPE_FP8_E4M3,
};

bool weight_is_quantized(const struct weight *w)
{
    return w->format >= WEIGHT_FP8;
}

enum dtype weight_dtype(const struct weight *w)
{
    assert(w->format <= WEIGHT_FP8);
    return element_types[w->format];
}

enum weight_format weight_format_of(enum dtype dtype)
{
    assert(dtype_size(dtype) > 1);
    return dtype == DTYPE_FLOAT32 ? WEIGHT_FLOAT32 : dtype == DTYPE_FLOAT16 ? WEIGHT_FLOAT16 : WEIGHT_BFLOAT16;
}

int64_t weight_groups(const struct weight *w)
{
    return weight_is_quantized(w) ? (w->in_features + w->group_size - 1) / w->group_size : 1;
}

int64_t weight_scale_count(const struct weight *w)
{
    if (!weight_is_quantized(w)) return 0;
    return (w->out_features + w->scale_rows - 1) / w->scale_rows * weight_groups(w);
}

int64_t weight_row_bytes(const struct weight *w)
{
    switch (w->format) {
    case WEIGHT_INT4:
    case WEIGHT_MXFP4:
        return w->in_features / 2;
    case WEIGHT_INT8:
        return w->in_features;
    default:
        return w->in_features * dtype_size(weight_dtype(w));
    }
}

int64_t weight_bytes(const struct weight *w)
{
    int64_t bytes = w->out_features * weight_row_bytes(w);
    if (weight_is_quantized(w)) bytes += weight_scale_count(w) * dtype_size(w->scale_dtype);
    if (w->zeros) bytes += w->out_features * weight_groups(w);
    if (w->input_order) bytes += w->in_features * (int64_t)sizeof *w->input_order;
    return bytes;
}

struct weight weight_of_segment(const struct weight *w, int32_t index)
{
    struct weight part = *w;
    const int64_t first = index * w->out_features;
    part.data = (const uint8_t *)w->data + first * weight_row_bytes(w);
    if (w->bias) part.bias = (const uint8_t *)w->bias + first * dtype_size(w->bias_dtype);
    if (w->scales)
        part.scales = (const uint8_t *)w->scales + index * weight_scale_count(w) * dtype_size(w->scale_dtype);
    if (w->zeros) part.zeros = w->zeros + first * weight_groups(w);
    return part;
}

float weight_element(const struct weight *w, int64_t o, int64_t i)
{
    const int64_t groups = weight_groups(w);
    if (!weight_is_quantized(w)) return dtype_load(w->data, weight_dtype(w), o * w->in_features + i);
    const int64_t group = i / w->group_size;
    const float scale = dtype_load(w->scales, w->scale_dtype, o / w->scale_rows * groups + group);
    if (w->format == WEIGHT_FP8) return scale * dtype_load(w->data, DTYPE_FP8_E4M3, o * w->in_features + i);
    if (w->format == WEIGHT_INT8) return scale * (float)((const int8_t *)w->data)[o * w->in_features + i];
    const uint8_t byte = ((const uint8_t *)w->data)[o * weight_row_bytes(w) + i / 2];
    const uint8_t half = i % 2 ? byte >> 4 : byte & 15;
    const int zero = w->zeros ? w->zeros[o * groups + group] : 8;
    return scale * (w->format == WEIGHT_MXFP4 ? e2m1_to_float(half) : (float)(half - zero));
}
