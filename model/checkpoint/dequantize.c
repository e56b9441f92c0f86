/* Floats of a matrix that is quantized in the file. */
#include <stdlib.h>

#include "kernels/fp8.h"
#include "model/checkpoint/weight_source.h"

/* What each code of the format stands for, less the zero point of INT4. */
static void list_values(float values[256], enum weight_format format)
{
    for (int i = 0; i < 256; i++) {
        const uint8_t code = (uint8_t)i;
        values[i] = format == WEIGHT_FP8     ? fp8_e4m3_to_float(code)
                    : format == WEIGHT_INT8  ? (float)(int8_t)code
                    : format == WEIGHT_MXFP4 ? e2m1_to_float(code & 15)
                                             : (float)(code & 15);
    }
}

/* Row o of w, the columns in the order of the input features. */
static void dequantize_row(const struct weight *w, const float values[256], int64_t o, float *out)
{
    const int64_t groups = weight_groups(w);
    const uint8_t *row = (const uint8_t *)w->data + o * weight_row_bytes(w);
    const bool packed = weight_is_packed(w->format);
    for (int64_t g = 0; g < groups; g++) {
        const int64_t first = g * w->group_size, end = first + w->group_size;
        const float scale = dtype_load(w->scales, w->scale_dtype, o / w->scale_rows * groups + g);
        const float zero = w->format == WEIGHT_INT4 ? (w->zeros ? w->zeros[o * groups + g] : 8) : 0;
        for (int64_t i = first; i < end && i < w->in_features; i++) {
            const uint8_t code = packed ? row[i / 2] >> (i % 2 * 4) & 15 : row[i];
            out[w->input_order ? w->input_order[i] : i] = scale * (values[code] - zero);
        }
    }
}

enum status weight_source_dequantize(const struct weight_source *s, int64_t first, int64_t count, float *out,
                                     struct error *err)
{
    const bool has_zeros = s->scheme->has_zeros;
    struct weight w = s->stored->weight;
    const struct weight_part_bytes bytes = weight_part_bytes(&w, has_zeros, count);
    struct weight_rows rows = {{NULL}};
    enum status status = STATUS_OK;
    float values[256];
    for (int i = 0; i < NUM_WEIGHT_PARTS && status == STATUS_OK; i++) {
        rows.at[i] = bytes.of[i] > 0 ? malloc((size_t)bytes.of[i]) : NULL;
        if (bytes.of[i] > 0 && !rows.at[i])
            status = error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for loading the weights");
    }
    if (status == STATUS_OK) status = weight_source_read_quantized(s->stored, first, count, &rows, err);
    weight_set_parts(&w, &rows);
    list_values(values, w.format);
    for (int64_t o = 0; o < count && status == STATUS_OK; o++) dequantize_row(&w, values, o, out + o * w.in_features);
    for (int i = 0; i < NUM_WEIGHT_PARTS; i++) free(rows.at[i]);
    return status;
}
