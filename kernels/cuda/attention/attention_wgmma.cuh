/* The operands of wgmma in attention. For sm_90a.
 *
 * An operand in shared memory consists of core matrices without swizzling: 8 rows (of A) or columns (of B) of 16
 * contiguous bytes along k, 128 bytes in all. The cache's layout of K consists of these. Alternatively, rows
 * and columns have 32 contiguous bytes, swizzled. The copy engine writes V in this way, whose rows have this size in a
 * block of 16 tokens. */
#ifndef QUIRE_KERNELS_CUDA_ATTENTION_ATTENTION_WGMMA_CUH
#define QUIRE_KERNELS_CUDA_ATTENTION_ATTENTION_WGMMA_CUH

#include "kernels/cuda/attention/attention_mma.cuh"
#include "kernels/cuda/wgmma.cuh"

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define ATTENTION_HAVE_WGMMA 1

/* Describes an operand of core matrices: they are `k_stride` bytes apart along k, and `stride` bytes across it.
 * Addresses and strides are multiples of 16. */
static __device__ __forceinline__ uint64_t wgmma_descriptor(uint32_t address, uint32_t k_stride, uint32_t stride = 128)
{
    return (uint64_t)(address >> 4 & 0x3fff) | (uint64_t)(k_stride >> 4) << 16 | (uint64_t)(stride >> 4) << 32;
}

/* Describes an operand of contiguous rows of 32 bytes (16 elements along k) in the 32-byte swizzle: the two halves of
 * rows 4 .. 7 of every 8 are swapped. The address is a multiple of 256. */
static __device__ __forceinline__ uint64_t wgmma_descriptor_swizzled(uint32_t address)
{
    return wgmma_descriptor(address, 16, 256) | (uint64_t)3 << 62;
}

#endif
#endif
