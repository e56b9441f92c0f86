/* What happens to a head of query or key in registers: the norm over the head (QK norm) and rotary position embedding
 * (Su et al., RoFormer, 2021). rotary_embedding and decode_attention use the same functions on the same split of a head
 * between lanes, so that they compute the same bits. */
#ifndef QUIRE_KERNELS_CUDA_ROTARY_CUH
#define QUIRE_KERNELS_CUDA_ROTARY_CUH

#include "kernels/cuda/gains.cuh"

/* Rotates the pairs (left[j], right[j]), each by its own angle. */
template <class T, int N>
static __device__ __forceinline__ void rotate(piece<T, N> &left, piece<T, N> &right, const float *cos, const float *sin)
{
#pragma unroll
    for (int j = 0; j < N; j++) {
        const float l = to_float(left.values[j]), r = to_float(right.values[j]);
        left.values[j] = from_float<T>(fmaf(l, cos[j], -(r * sin[j])));
        right.values[j] = from_float<T>(fmaf(r, cos[j], l * sin[j]));
    }
}

/* sum + x[0]^2 + x[1]^2 + ..., added up in this order. */
template <class T, int N> static __device__ __forceinline__ float add_squares(float sum, const piece<T, N> &x)
{
#pragma unroll
    for (int j = 0; j < N; j++) sum = fmaf(to_float(x.values[j]), to_float(x.values[j]), sum);
    return sum;
}

/* 1 / sqrt(mean(x^2) + eps) of a head that is shared by `lanes` neighbouring lanes, a power of two; sum is this lane's.
 * All lanes of the warp must call it. */
static __device__ __forceinline__ float head_norm_factor(float sum, int lanes, int head_size, float eps)
{
    for (int offset = lanes / 2; offset > 0; offset /= 2) sum += __shfl_xor_sync(~0u, sum, offset);
    return rsqrtf(sum / (float)head_size + eps);
}

#endif
