/* Quantized rows: a block writes a token in 8 bits, with one scale or a scale for each group of 128 elements. And the
 * scales that their matmuls leave out. */
#ifndef QUIRE_KERNELS_CUDA_QUANTIZE_CUH
#define QUIRE_KERNELS_CUDA_QUANTIZE_CUH

#include <cuda_fp8.h>

#include "kernels/cuda/state.cuh"
#include "kernels/cuda/warp.cuh"

enum { QUANTIZE_GROUP = 128 };

/* struct quantized_rows, as kernels take it. data NULL: nothing is quantized. */
struct quantize_call {
    uint8_t *data;
    float *scales;
    int64_t row_bytes; /* from row to row of data */
    int64_t stride;    /* of the scales, from group to group, */
    int64_t of_row;    /* and from row to row */
    bool has_groups;
};

static inline quantize_call quantize_call_of(const struct quantized_rows *rows, int32_t num_tokens, int32_t size)
{
    if (!rows) return {};
    return {(uint8_t *)rows->data, rows->scales, size, quantized_rows_padded(num_tokens), 1, rows->group_size != size};
}

/* False: cuda_fail was called, because no kernel takes such rows. */
static inline bool quantize_check(struct backend *b, const char *operation, const struct quantized_rows *rows,
                                  int32_t size)
{
    const bool grouped = rows->group_size == QUANTIZE_GROUP && size % QUANTIZE_GROUP == 0;
    if ((rows->group_size == size || grouped) && size % 16 == 0 && cuda_is_aligned(rows->data)) return true;
    cuda_fail(b, "%s: there is no kernel that quantizes %d elements in groups of %lld", operation, size,
              (long long)rows->group_size);
    return false;
}

/* The values of piece i of the token blockIdx.x, from whose matmul scales were left out. */
template <class T, int N>
static __device__ __forceinline__ void load_scaled(float (&values)[N], const piece<T, N> &p,
                                                   const left_out_scales &scales, int i)
{
    const float of_token = scales.factor * scales.of_tokens[blockIdx.x];
    const piece<float, N> of_features = ((const piece<float, N> *)scales.of_features)[i];
#pragma unroll
    for (int j = 0; j < N; j++) values[j] = of_token * of_features.values[j] * to_float(p.values[j]);
}

/* The values of piece i of the token blockIdx.x, whether scales were left out or not. */
template <class T, int N>
static __device__ __forceinline__ void load_values(float (&values)[N], const piece<T, N> &p,
                                                   const left_out_scales &scales, int i)
{
    if (scales.of_tokens) {
        load_scaled(values, p, scales, i);
    } else {
#pragma unroll
        for (int j = 0; j < N; j++) values[j] = to_float(p.values[j]);
    }
}

/* The scale of elements of at most this magnitude; not zero, so that one can divide by it. */
static __device__ __forceinline__ float quantize_scale(float largest)
{
    return fmaxf(largest, 1e-12f) / 448;
}

template <class T, int N> static __device__ __forceinline__ float largest_of(const piece<T, N> &p)
{
    float largest = 0;
#pragma unroll
    for (int j = 0; j < N; j++) largest = fmaxf(largest, fabsf(to_float(p.values[j])));
    return largest;
}

/* The largest x of the block. */
static __device__ __forceinline__ float largest_of_block(float x, float (&of_warps)[32])
{
    x = warp_max(x);
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = x;
    __syncthreads();
    return warp_max(threadIdx.x % 32 < blockDim.x / 32 ? of_warps[threadIdx.x % 32] : 0);
}

template <class T, int N>
static __device__ __forceinline__ void store_quantized(uint8_t *row, const piece<T, N> &p, float inverse_scale, int i)
{
    piece<__nv_fp8x2_storage_t, N / 2> out;
#pragma unroll
    for (int j = 0; j < N / 2; j++)
        out.values[j] = __nv_cvt_float2_to_fp8x2(
            {to_float(p.values[2 * j]) * inverse_scale, to_float(p.values[2 * j + 1]) * inverse_scale}, __NV_SATFINITE,
            __NV_E4M3);
    ((piece<__nv_fp8x2_storage_t, N / 2> *)row)[i] = out;
}

/* Writes a token, of `pieces` pieces. Piece threadIdx.x + k * blockDim.x is kept[k], and load(i) gives piece i where
 * that is beyond `kept`. N is 16 bytes of T. A block that writes several tokens calls __syncthreads in between. */
template <class T, int N, int KEPT, class Load>
static __device__ __forceinline__ void quantize_token(const quantize_call &call, int token,
                                                      const piece<T, N> (&kept)[KEPT], int pieces, Load load)
{
    constexpr int LANES = QUANTIZE_GROUP / N;
    __shared__ float of_warps[32];
    const int step = blockDim.x;
    uint8_t *row = call.data + token * call.row_bytes;
    float *scales = call.scales + token * call.of_row;
    float scale = 0;
    if (!call.has_groups) {
        float largest = 0;
#pragma unroll
        for (int k = 0; k < KEPT; k++)
            if ((int)threadIdx.x + k * step < pieces) largest = fmaxf(largest, largest_of(kept[k]));
        for (int i = threadIdx.x + KEPT * step; i < pieces; i += step) largest = fmaxf(largest, largest_of(load(i)));
        scale = quantize_scale(largest_of_block(largest, of_warps));
        if (threadIdx.x == 0) *scales = scale;
    }
    auto store = [&](const piece<T, N> &p, int i) {
        if (call.has_groups) {
            scale = quantize_scale(warp_max<LANES>(i < pieces ? largest_of(p) : 0));
            if (i < pieces && i % LANES == 0) scales[i / LANES * call.stride] = scale;
        }
        if (i < pieces) store_quantized(row, p, 1 / scale, i);
    };
#pragma unroll
    for (int k = 0; k < KEPT; k++) store(kept[k], threadIdx.x + k * step);
    for (int first = KEPT * step; first < pieces; first += step) {
        const int i = first + threadIdx.x;
        store(i < pieces ? load(i) : piece<T, N>(), i);
    }
}

/* The token blockIdx.x. */
template <class T, int N, int KEPT, class Load>
static __device__ __forceinline__ void quantize_row(const quantize_call &call, const piece<T, N> (&kept)[KEPT],
                                                    int pieces, Load load)
{
    quantize_token(call, blockIdx.x, kept, pieces, load);
}

#endif
