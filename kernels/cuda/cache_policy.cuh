/* What the L2 cache keeps, and for how long (compute capability 8.0 and later; PTX ISA, "createpolicy"). */
#ifndef QUIRE_KERNELS_CUDA_CACHE_POLICY_CUH
#define QUIRE_KERNELS_CUDA_CACHE_POLICY_CUH

#include "kernels/cuda/state.cuh"

/* The policy for data that is read once and should leave the L2 cache first. */
static __device__ __forceinline__ uint64_t evict_first_policy()
{
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

/* The policy for data that every block reads and that should stay in the L2 cache. */
static __device__ __forceinline__ uint64_t evict_last_policy()
{
    uint64_t policy;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

#endif
