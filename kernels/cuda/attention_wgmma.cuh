/* How attention uses Hopper's matrix product over a warpgroup, and the barriers between the warps that copy and those
 * that compute. For sm_90a.
 *
 * Operands in shared memory are made of core matrices, 8 rows (A) or columns (B) of 16 contiguous bytes along k, 128
 * bytes in all, without swizzling: the cache's layout of K is made of just these. Or rows and columns have 32
 * contiguous bytes, swizzled: so the copy engine brings V, whose rows in a block of 16 tokens are of this size. */
#ifndef QUIRE_KERNELS_CUDA_ATTENTION_WGMMA_CUH
#define QUIRE_KERNELS_CUDA_ATTENTION_WGMMA_CUH

#include <cuda.h>

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

/* mbarriers: a phase ends when `count` threads have arrived. */
static __device__ __forceinline__ void barrier_init(uint64_t *barrier, int count)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;\n" ::"r"(shared_address(barrier)), "r"(count) : "memory");
}

static __device__ __forceinline__ void barrier_arrive(uint64_t *barrier)
{
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];\n" ::"r"(shared_address(barrier)) : "memory");
}

/* Arrives, and makes the phase wait for that many bytes of tensor_copy too. */
static __device__ __forceinline__ void barrier_arrive_expect(uint64_t *barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;\n" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

/* Brings a map close, before its first use. */
static __device__ __forceinline__ void tensor_map_prefetch(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];\n" ::"l"(map) : "memory");
}

/* A box of a tensor of 5 dimensions, from those coordinates, into shared memory; the barrier counts its bytes. */
static __device__ __forceinline__ void tensor_copy(uint32_t to, const CUtensorMap *map, int32_t c0, int32_t c1,
                                                   int32_t c2, int32_t c3, int32_t c4, uint64_t *barrier)
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4, %5, %6}], [%7];\n" ::"r"(to),
                 "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4), "r"(shared_address(barrier))
                 : "memory");
}

/* Arrives once this thread's copies so far are there. */
static __device__ __forceinline__ void barrier_arrive_copied(uint64_t *barrier)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];\n" ::"r"(shared_address(barrier)) : "memory");
}

/* Waits for the end of the phase of that parity. */
static __device__ __forceinline__ void barrier_wait(uint64_t *barrier, uint32_t parity)
{
    asm volatile("{\n.reg .pred p;\nagain:\n"
                 "mbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n@!p bra again;\n}\n" ::"r"(shared_address(barrier)),
                 "r"(parity)
                 : "memory");
}

#endif
#endif
