/* Rows of a quantized weight as floats, in the order of the input features, for kernels that take no quantized ones. */
#include "kernels/cuda/matmul/dequantize.cuh"

enum { THREADS = 256, EACH = 8 /* columns of a thread */ };

struct dequantize_call {
    struct stored_weight stored;
    int64_t first, rows;
    bool by_pieces; /* EACH columns of a row lie together, and so do the elements that they become */
};

/* EACH columns from a multiple of EACH on. */
static __device__ __forceinline__ void load_piece(float (&out)[EACH], const stored_weight &c, int64_t row,
                                                  int64_t column)
{
    const int64_t at = row * c.weight.in_features + column;
    if (c.weight.format == WEIGHT_FP8 || c.weight.format == WEIGHT_INT8) {
        const uint2 bytes = ((const uint2 *)c.weight.data)[at / EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            const uint32_t byte = (i < 4 ? bytes.x : bytes.y) >> i % 4 * 8 & 0xff;
            out[i] = c.weight.format == WEIGHT_FP8 ? fp8_to_float(byte) : (float)(int8_t)byte;
        }
        return;
    }
    const uint32_t *words = (const uint32_t *)c.weight.data;
    uint32_t halves[EACH]; /* in the lower bits */
    if (c.prepared) {
        const int in_segment = (int)(column % INT4_SEGMENT), word = in_segment / 32, pair = in_segment / EACH % 4;
        const int of_piece = piece_words(c.weight.in_features, column - in_segment);
#pragma unroll
        for (int t = 0; t < 4; t++) {
            const uint32_t both = words[(at - in_segment) / EACH + of_piece * t + word];
            halves[2 * t] = prepared_half_byte(c.weight.format, both, pair);
            halves[2 * t + 1] = prepared_half_byte(c.weight.format, both >> 16, pair);
        }
    } else {
#pragma unroll
        for (int i = 0; i < EACH; i++) halves[i] = words[at / EACH] >> 4 * i;
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
        out[i] = c.weight.format == WEIGHT_MXFP4 ? e2m1_to_float(halves[i]) : (float)(halves[i] & 15);
}

/* Thread i of a row has its columns EACH i, ..., EACH i + EACH - 1. */
template <class T>
static __global__ void __launch_bounds__(THREADS) dequantize_kernel(T *out, const __grid_constant__ dequantize_call c)
{
    const struct weight &w = c.stored.weight;
    const int64_t pieces = (w.in_features + EACH - 1) / EACH, at = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (at >= c.rows * pieces) return;
    const int64_t to = at / pieces, row = c.first + to, column = at % pieces * EACH;
    if (c.by_pieces) {
        const scale_and_zero g = group_of(c.stored, row, column);
        float stored[EACH];
        piece<T, EACH> values;
        load_piece(stored, c.stored, row, column);
#pragma unroll
        for (int i = 0; i < EACH; i++) values.values[i] = from_float<T>(g.scale * (stored[i] - g.zero));
        *(piece<T, EACH> *)(out + to * w.in_features + column) = values;
        return;
    }
    for (int64_t i = column; i < column + EACH && i < w.in_features; i++) {
        const int64_t feature = w.input_order ? w.input_order[i] : i;
        out[to * w.in_features + feature] = from_float<T>(load_element(c.stored, row, i));
    }
}

void dequantize_rows(struct backend *b, const struct weight *w, int64_t first, int64_t rows, enum dtype dtype,
                     void *out)
{
    const int64_t threads = rows * cuda_div_up(w->in_features, EACH);
    const bool by_pieces = !w->input_order && w->in_features % EACH == 0 && w->group_size % EACH == 0 &&
                           cuda_is_aligned(w->data) && cuda_is_aligned(out);
    const dequantize_call call = {stored_weight_of(w), first, rows, by_pieces};
    cuda_dispatch(b, "linear", dtype, [&](auto zero) {
        using T = decltype(zero);
        dequantize_kernel<<<(unsigned)cuda_div_up(threads, THREADS), THREADS, 0, cuda_stream(b, NULL)>>>((T *)out,
                                                                                                         call);
    });
    cuda_check_launch(b, "linear");
}

int64_t cuda_dequantize_workspace(const struct cuda_state *s, const struct workspace_query *query)
{
    (void)s;
    const int64_t bytes = query->max_quantized_elements * (int64_t)sizeof(float);
    const int64_t row = query->max_in_features * (int64_t)sizeof(float),
                  most = row > SLAB_BYTES ? row : (int64_t)SLAB_BYTES;
    return bytes < most ? bytes : most;
}
