/* Quantized weights as floats. */
#include "kernels/cpu/state.h"
#include "kernels/fp8.h"

/* Columns [start, end) of a row, all of one group. */
static void dequantize_group(float *out, enum weight_format format, const struct cpu_group *group, int64_t start,
                             int64_t end)
{
    const uint8_t *row = group->row;
    for (int64_t i = start; i < end; i++) {
        const int half = row[weight_is_packed(format) ? i / 2 : i] >> (i % 2 * 4) & 15;
        const float value = format == WEIGHT_FP8     ? fp8_e4m3_to_float(row[i])
                            : format == WEIGHT_INT8  ? (float)(int8_t)row[i]
                            : format == WEIGHT_MXFP4 ? e2m1_to_float((uint8_t)half)
                                                     : (float)(half - group->zero);
        *out++ = group->scale * value;
    }
}

/* Columns [start, start + depth) of output feature o. */
static void dequantize_row(const struct cpu_state *s, float *out, const struct weight *w, int64_t o, int64_t start,
                           int64_t depth)
{
    const struct cpu_quantized_kernels *quantized = s->tables->quantized;
    const int64_t groups = weight_groups(w), end = start + depth;
    struct cpu_group group = {.row = (const uint8_t *)w->data + o * weight_row_bytes(w)};
    for (int64_t i = start, stop; i < end; i = stop) {
        const int64_t g = i / w->group_size;
        stop = min_i64(end, (g + 1) * w->group_size);
        group.scale = dtype_load(w->scales, w->scale_dtype, o / w->scale_rows * groups + g);
        group.zero = w->zeros ? w->zeros[o * groups + g] : 8;
        const int64_t done = quantized ? quantized->dequantize(out, w->format, &group, i, stop) : 0;
        dequantize_group(out + done, w->format, &group, i + done, stop);
        out += stop - i;
    }
}

void cpu_dequantize(const struct cpu_state *s, float *out, const struct weight *w, int64_t first, int64_t count,
                    int64_t start, int64_t depth)
{
    for (int64_t o = 0; o < count; o++) dequantize_row(s, out + o * depth, w, first + o, start, depth);
}
