/* Sums and maxima over the threads of a warp or of a block. All of these threads call, and all get the result. */
#ifndef QUIRE_KERNELS_CUDA_WARP_CUH
#define QUIRE_KERNELS_CUDA_WARP_CUH

/* The sum over LANES neighbouring lanes, a power of two. */
template <int LANES = 32> static __device__ __forceinline__ float warp_sum(float x)
{
#pragma unroll
    for (int offset = LANES / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(~0u, x, offset);
    return x;
}

/* The maximum over LANES neighbouring lanes, a power of two. */
template <int LANES = 32> static __device__ __forceinline__ float warp_max(float x)
{
#pragma unroll
    for (int offset = LANES / 2; offset > 0; offset /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, offset));
    return x;
}

enum { BLOCK_SUM_WARPS = 16 /* block_sum takes a block of so many warps at most */ };
struct warp_sums {
    float of_warps[BLOCK_SUM_WARPS];
};

/* The sum over the block. No two calls of a kernel share `sums`: a warp may read them after another has gone on. */
static __device__ __forceinline__ float block_sum(float x, struct warp_sums *sums)
{
    x = warp_sum(x);
    if (threadIdx.x % 32 == 0) sums->of_warps[threadIdx.x / 32] = x;
    __syncthreads();
    x = threadIdx.x % 32 < blockDim.x / 32 ? sums->of_warps[threadIdx.x % 32] : 0;
    return __shfl_sync(~0u, warp_sum<BLOCK_SUM_WARPS>(x), 0);
}

#endif
