/* Quantized weights as floats. */
#include "kernels/cpu/state.h"
#include "kernels/fp8.h"

/* Columns [start, end) of a row, all of one group. */
static void dequantize_group(float *out, const struct weight *w, const uint8_t *row, float scale, int zero,
                             int64_t start, int64_t end)
{
    switch (w->format) {
    case WEIGHT_FP8:
        for (int64_t i = start; i < end; i++) *out++ = scale * fp8_e4m3_to_float(row[i]);
        break;
    case WEIGHT_INT8:
        for (int64_t i = start; i < end; i++) *out++ = scale * (float)(int8_t)row[i];
        break;
    default:
        for (int64_t i = start; i < end; i++) *out++ = scale * (float)((row[i / 2] >> (i % 2 * 4) & 15) - zero);
        break;
    }
}

void cpu_dequantize(float *out, const struct weight *w, int64_t first, int64_t count, int64_t start, int64_t depth)
{
    const int64_t groups = weight_groups(w), end = start + depth;
    for (int64_t o = first; o < first + count; o++) {
        const uint8_t *row = (const uint8_t *)w->data + o * weight_row_bytes(w);
        for (int64_t i = start, stop; i < end; i = stop) {
            const int64_t group = i / w->group_size;
            const float scale = dtype_load(w->scales, w->scale_dtype, o / w->scale_rows * groups + group);
            stop = min_i64(end, (group + 1) * w->group_size);
            dequantize_group(out, w, row, scale, w->zeros ? w->zeros[o * groups + group] : 8, i, stop);
            out += stop - i;
        }
    }
}
