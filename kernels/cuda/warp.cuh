/* Sums and maxima over the lanes of a warp, which all lanes get. */
#ifndef QUIRE_KERNELS_CUDA_WARP_CUH
#define QUIRE_KERNELS_CUDA_WARP_CUH

/* Over LANES neighbouring lanes, a power of two. */
template <int LANES = 32> static __device__ __forceinline__ float warp_sum(float x)
{
#pragma unroll
    for (int offset = LANES / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(~0u, x, offset);
    return x;
}

template <int LANES = 32> static __device__ __forceinline__ float warp_max(float x)
{
#pragma unroll
    for (int offset = LANES / 2; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, offset));
    return x;
}

#endif
