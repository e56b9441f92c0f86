/* Copies from global to shared memory by the copy engine; a barrier counts the bytes that have been copied (compute
 * capability 9.0 and later; PTX ISA, "cp.async.bulk"). */
#ifndef QUIRE_KERNELS_CUDA_BULK_COPY_CUH
#define QUIRE_KERNELS_CUDA_BULK_COPY_CUH

#include <cuda.h>

#include "kernels/cuda/barrier.cuh"
#include "kernels/cuda/cache_policy.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/* Copies `bytes` bytes, a multiple of 16. Both addresses are multiples of 16. */
static __device__ __forceinline__ void bulk_copy(void *destination, const void *source, uint32_t bytes,
                                                 uint64_t *barrier, uint64_t policy)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, "
                 "[%3], %4;" ::"r"(shared_address(destination)),
                 "l"(source), "r"(bytes), "r"(shared_address(barrier)), "l"(policy)
                 : "memory");
}

/* Reads `bytes` bytes, a multiple of 16, into the L2 cache only. */
static __device__ __forceinline__ void bulk_prefetch(const void *source, uint32_t bytes)
{
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(source), "r"(bytes) : "memory");
}

/* Whether bulk_copy_to_cluster can be used: only architecture-specific targets (90a, 100a) have it as one fast
 * instruction. */
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || defined(__CUDA_ARCH_FEAT_SM100_ALL)
static constexpr bool BULK_COPY_TO_CLUSTER = true;
#else
static constexpr bool BULK_COPY_TO_CLUSTER = false;
#endif

/* Copies to one address of shared memory in several blocks of the cluster (a bit each in `blocks`), each with its own
 * barrier. */
static __device__ __forceinline__ void bulk_copy_to_cluster(void *destination, const void *source, uint32_t bytes,
                                                            uint64_t *barrier, uint16_t blocks, uint64_t policy)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || defined(__CUDA_ARCH_FEAT_SM100_ALL)
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint "
                 "[%0], [%1], %2, [%3], %4, %5;" ::"r"(shared_address(destination)),
                 "l"(source), "r"(bytes), "r"(shared_address(barrier)), "h"(blocks), "l"(policy)
                 : "memory");
#else
    (void)destination, (void)source, (void)bytes, (void)barrier, (void)blocks, (void)policy;
#endif
}

/* Prefetches a map before its first use. */
static __device__ __forceinline__ void tensor_map_prefetch(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* Copies a box of a matrix, from that column and row on; the map has the box's size. The barrier counts the bytes of
 * the whole box, even if a part of it is outside the matrix. */
static __device__ __forceinline__ void box_copy_2d(void *destination, const CUtensorMap *map, int32_t column,
                                                   int32_t row, uint64_t *barrier, uint64_t policy)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
                 "[%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(destination)),
                 "l"(map), "r"(column), "r"(row), "r"(shared_address(barrier)), "l"(policy)
                 : "memory");
}

/* Copies a box of a tensor of 5 dimensions; `to` is a shared_address. */
static __device__ __forceinline__ void box_copy_5d(uint32_t to, const CUtensorMap *map, int32_t c0, int32_t c1,
                                                   int32_t c2, int32_t c3, int32_t c4, uint64_t *barrier)
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4, %5, %6}], [%7];" ::"r"(to),
                 "l"(map), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4), "r"(shared_address(barrier))
                 : "memory");
}

#endif
#endif
