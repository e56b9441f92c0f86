/* How attention uses Hopper's matrix product over a warpgroup. For sm_90a.
 *
 * Operands in shared memory are made of core matrices, 8 rows (A) or columns (B) of 16 contiguous bytes along k, 128
 * bytes in all, without swizzling: the cache's layout of K is made of just these. Or rows and columns have 32
 * contiguous bytes, swizzled: so the copy engine brings V, whose rows in a block of 16 tokens are of this size. */
#ifndef QUIRE_KERNELS_CUDA_ATTENTION_WGMMA_CUH
#define QUIRE_KERNELS_CUDA_ATTENTION_WGMMA_CUH

#include "kernels/cuda/attention_mma.cuh"
#include "kernels/cuda/wgmma.cuh"

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define ATTENTION_HAVE_WGMMA 1

/* Where the core matrices of an operand are: `k_stride` bytes from one to the next along k, `stride` across it.
 * Addresses and strides are multiples of 16. */
static __device__ __forceinline__ uint64_t wgmma_descriptor(uint32_t address, uint32_t k_stride, uint32_t stride = 128)
{
    return (uint64_t)(address >> 4 & 0x3fff) | (uint64_t)(k_stride >> 4) << 16 | (uint64_t)(stride >> 4) << 32;
}

/* An operand's 16 elements along k as 32 bytes, these after each other, swizzled: the two halves of rows 4 .. 7 of
 * every 8 have changed places. The address is a multiple of 256. */
static __device__ __forceinline__ uint64_t wgmma_descriptor_swizzled(uint32_t address)
{
    return wgmma_descriptor(address, 16, 256) | (uint64_t)3 << 62;
}

/* What ordinary instructions wrote to shared memory, and this thread knows of, can be read by wgmma after this. */
static __device__ __forceinline__ void async_proxy_fence()
{
    asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory");
}

#endif
#endif
