/* Rows of a quantized weight as floats, for kernels that take no quantized ones. */
#ifndef QUIRE_KERNELS_CUDA_MATMUL_DEQUANTIZE_CUH
#define QUIRE_KERNELS_CUDA_MATMUL_DEQUANTIZE_CUH

#include "kernels/cuda/matmul/quantized.cuh"

/* A quantized weight as it lies in memory. */
struct stored_weight {
    struct weight weight;
    int64_t groups;
    bool prepared; /* in the order of weight_prepare */
};

static inline struct stored_weight stored_weight_of(const struct weight *w)
{
    return {*w, weight_groups(w), weight_is_prepared(w)};
}

/* Scale and zero of columns that share a group. */
struct scale_and_zero {
    float scale, zero;
};

static __device__ __forceinline__ scale_and_zero group_of(const stored_weight &c, int64_t row, int64_t column)
{
    const struct weight &w = c.weight;
    const int64_t group = column / w.group_size;
    const float scale = load_scale(w.scales, w.scale_dtype, row / w.scale_rows * c.groups + group);
    if (w.format != WEIGHT_INT4) return {scale, 0};
    return {scale, w.zeros ? (float)w.zeros[row * c.groups + group] : 8.0f};
}

static __device__ __forceinline__ float fp8_to_float(uint32_t byte)
{
    uint32_t even, odd;
    fp8_pairs<__half>(byte, even, odd);
    return (byte & 0x7f) == 0x7f ? NAN : FP8_FACTOR<__half> * __half2float(__ushort_as_half((uint16_t)even));
}

/* Of the lower four bits. They are e2m1 in the fields of a float16, whose exponent has a bias that is larger by 14. */
static __device__ __forceinline__ float e2m1_to_float(uint32_t half_byte)
{
    const uint32_t bits = (half_byte & 8) << 12 | (half_byte & 7) << 9;
    return 0x1p14f * __half2float(__ushort_as_half((uint16_t)bits));
}

/* The element of a pair in the lower half of a prepared word, in the lower four bits. */
static __device__ __forceinline__ uint32_t prepared_half_byte(enum weight_format format, uint32_t half, int pair)
{
    return format == WEIGHT_MXFP4 ? mxfp4_half_byte(half, pair) : half >> 4 * pair;
}

static __device__ __forceinline__ float load_stored(const stored_weight &c, int64_t row, int64_t column)
{
    const struct weight &w = c.weight;
    const uint8_t *data = (const uint8_t *)w.data;
    if (w.format == WEIGHT_FP8) return fp8_to_float(data[row * w.in_features + column]);
    if (w.format == WEIGHT_INT8) return (float)(int8_t)data[row * w.in_features + column];
    const int in_segment = (int)(column % INT4_SEGMENT);
    const int place = prepared_place(in_segment, piece_words(w.in_features, column - in_segment));
    const int64_t at = row * w.in_features + (c.prepared ? column - in_segment + place : column);
    const uint32_t word = c.prepared ? ((const uint32_t *)data)[at / 8] >> place % 8 / 4 * 16 : data[at / 2];
    const uint32_t half_byte = (c.prepared ? prepared_half_byte(w.format, word, place % 4) : word >> at % 2 * 4) & 15;
    return w.format == WEIGHT_MXFP4 ? e2m1_to_float(half_byte) : (float)half_byte;
}

static __device__ __forceinline__ float load_element(const stored_weight &c, int64_t row, int64_t column)
{
    const scale_and_zero g = group_of(c, row, column);
    return g.scale * (load_stored(c, row, column) - g.zero);
}

/* At most so many bytes of floats are made at a time, so that most are still in the L2 cache when they are read. */
enum { SLAB_BYTES = 64 << 20 };

/* out[r][i] dtype = the element of row first + r, 0 <= r < rows, and of input feature i. */
void dequantize_rows(struct backend *b, const struct weight *w, int64_t first, int64_t rows, enum dtype dtype,
                     void *out);

#endif
