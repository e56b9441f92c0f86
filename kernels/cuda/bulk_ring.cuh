/* What a ring of shared memory needs that the bulk copy engine fills and warps empty (compute capability 9.0 and
 * later): barriers that count bytes, the copies, clusters, and the two halves of a programmatic dependent launch. PTX
 * ISA, sections "mbarrier", "cp.async.bulk", "barrier.cluster" and "griddepcontrol". */
#ifndef QUIRE_KERNELS_CUDA_BULK_RING_CUH
#define QUIRE_KERNELS_CUDA_BULK_RING_CUH

#include <cuda.h>
#include <stdint.h>

static __device__ __forceinline__ uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

#if __CUDA_ARCH__ >= 900

static __device__ __forceinline__ void barrier_init(uint64_t *barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals));
}

/* After barrier_init, before other threads and the copy engine use the barriers. */
static __device__ __forceinline__ void barrier_init_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

static __device__ __forceinline__ void barrier_arrive(uint64_t *barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

/* Arrives, and makes the phase wait for that many bytes too. */
static __device__ __forceinline__ void barrier_expect(uint64_t *barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

/* Waits until the phase of that parity is over. */
static __device__ __forceinline__ void barrier_wait(uint64_t *barrier, uint32_t parity)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra over;\n"
                 "bra again;\n"
                 "over:\n"
                 "}" ::"r"(shared_address(barrier)),
                 "r"(parity)
                 : "memory");
}

/* For data that is read once: it should leave the L2 cache first. */
static __device__ __forceinline__ uint64_t evict_first_policy()
{
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

/* For data that every block reads. */
static __device__ __forceinline__ uint64_t evict_last_policy()
{
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

/* Copies bytes, a multiple of 16, between 16-byte-aligned places; the barrier counts them. */
static __device__ __forceinline__ void bulk_copy(void *destination, const void *source, uint32_t bytes,
                                                 uint64_t *barrier, uint64_t policy)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, "
                 "[%3], %4;" ::"r"(shared_address(destination)),
                 "l"(source), "r"(bytes), "r"(shared_address(barrier)), "l"(policy)
                 : "memory");
}

/* Copies a box of a matrix, from that column and row on, as the map says; the barrier counts the whole box's bytes. */
static __device__ __forceinline__ void box_copy(void *destination, const CUtensorMap *map, int32_t column, int32_t row,
                                                uint64_t *barrier, uint64_t policy)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
                 "[%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(destination)),
                 "l"(map), "r"(column), "r"(row), "r"(shared_address(barrier)), "l"(policy)
                 : "memory");
}

/* Whether the target has bulk_copy_to_cluster: only the architecture-specific ones (90a, 100a) do it fast. */
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || defined(__CUDA_ARCH_FEAT_SM100_ALL)
static constexpr bool BULK_COPY_TO_CLUSTER = true;
#else
static constexpr bool BULK_COPY_TO_CLUSTER = false;
#endif

/* The same into the same places of each block of the cluster in `blocks`, a bit each, with each block's own barrier. */
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

static __device__ __forceinline__ uint32_t rank_in_cluster()
{
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

/* What lies at the same place of another block of the cluster. */
static __device__ __forceinline__ float4 load_from_cluster(const float *data, uint32_t rank)
{
    float4 out;
    asm volatile("{\n"
                 ".reg .b32 there;\n"
                 "mapa.shared::cluster.u32 there, %4, %5;\n"
                 "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there];\n"
                 "}"
                 : "=f"(out.x), "=f"(out.y), "=f"(out.z), "=f"(out.w)
                 : "r"(shared_address(data)), "r"(rank));
    return out;
}

/* A barrier of the cluster, in two halves: every thread does both, once. Relaxed: what was written before is not what
 * the others wait for. */
static __device__ __forceinline__ void cluster_arrive()
{
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
static __device__ __forceinline__ void cluster_arrive_relaxed()
{
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
static __device__ __forceinline__ void cluster_wait()
{
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* The kernel that follows may start, if it was launched to: it waits by itself before it reads what this one writes. */
static __device__ __forceinline__ void launch_dependents()
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/* Until the kernels before this one are over and what they wrote can be read. */
static __device__ __forceinline__ void wait_for_previous_kernels()
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

#endif

#endif
