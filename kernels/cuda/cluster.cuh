/* Clusters: blocks that run at the same time on neighbouring multiprocessors and can read each other's shared memory
 * (compute capability 9.0 and later). Kernels for other devices do not call these functions. */
#ifndef QUIRE_KERNELS_CUDA_CLUSTER_CUH
#define QUIRE_KERNELS_CUDA_CLUSTER_CUH

#include "kernels/cuda/state.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

static __device__ __forceinline__ uint32_t cluster_rank()
{
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;\n" : "=r"(rank));
    return rank;
}

/* The number of blocks of the cluster. */
static __device__ __forceinline__ uint32_t cluster_size()
{
    uint32_t size;
    asm volatile("mov.u32 %0, %%cluster_nctaid.x;\n" : "=r"(size));
    return size;
}

/* A barrier of the cluster in two halves, which all threads of the cluster call. What its blocks wrote to shared memory
 * before they arrived can be read after the wait, unless they arrived relaxed. */
static __device__ __forceinline__ void cluster_arrive()
{
    asm volatile("barrier.cluster.arrive.release.aligned;\n" ::: "memory");
}
static __device__ __forceinline__ void cluster_arrive_relaxed()
{
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\n" ::: "memory");
}
static __device__ __forceinline__ void cluster_wait()
{
    asm volatile("barrier.cluster.wait.acquire.aligned;\n" ::: "memory");
}

/* The address of `data`, which is in this block's shared memory, in the shared memory of the cluster's `rank`-th block.
 */
static __device__ __forceinline__ uint32_t cluster_address(const void *data, uint32_t rank)
{
    uint32_t address;
    asm("mapa.shared::cluster.u32 %0, %1, %2;\n" : "=r"(address) : "r"(shared_address(data)), "r"(rank));
    return address;
}

static __device__ __forceinline__ float cluster_load(uint32_t address)
{
    float x;
    asm volatile("ld.shared::cluster.f32 %0, [%1];\n" : "=f"(x) : "r"(address) : "memory");
    return x;
}

static __device__ __forceinline__ float2 cluster_load_2(uint32_t address)
{
    float2 x;
    asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];\n" : "=f"(x.x), "=f"(x.y) : "r"(address) : "memory");
    return x;
}

static __device__ __forceinline__ float4 cluster_load_4(uint32_t address)
{
    float4 x;
    asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];\n"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"(address)
                 : "memory");
    return x;
}

/* Writes x to an address of cluster_address, and tells the barrier, of the same block, that 4 bytes have been copied.
 */
static __device__ __forceinline__ void cluster_send(float x, uint32_t address, uint32_t barrier)
{
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];\n" ::"r"(address),
                 "r"(__float_as_uint(x)), "r"(barrier)
                 : "memory");
}

#else

static __device__ __forceinline__ uint32_t cluster_rank()
{
    return 0;
}
static __device__ __forceinline__ uint32_t cluster_size()
{
    return 1;
}
static __device__ __forceinline__ void cluster_arrive() {}
static __device__ __forceinline__ void cluster_wait() {}
static __device__ __forceinline__ uint32_t cluster_address(const void *, uint32_t)
{
    return 0;
}
static __device__ __forceinline__ float cluster_load(uint32_t)
{
    return 0;
}
static __device__ __forceinline__ float2 cluster_load_2(uint32_t)
{
    return {};
}
static __device__ __forceinline__ float4 cluster_load_4(uint32_t)
{
    return {};
}

#endif
#endif
