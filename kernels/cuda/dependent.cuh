/* Programmatic dependent launches (compute capability 9.0 and later; PTX ISA, "griddepcontrol"): a kernel starts while
 * the one before it still runs, once every block of that one has let it or has ended, so that its launch, and whatever
 * it reads that no kernel of the step writes, costs no time.
 *
 * Such a kernel waits before it reads what kernels before it write, and before it writes anything at all, because they
 * may still read that. Some block of every such kernel waits before it ends: else the next could find the one before
 * the last still running. The first kernel of a step is launched as any other, so that the step's inputs are in place
 * for all that follow. */
#ifndef QUIRE_KERNELS_CUDA_DEPENDENT_CUH
#define QUIRE_KERNELS_CUDA_DEPENDENT_CUH

#include "kernels/cuda/state.cuh"

#if __CUDA_ARCH__ >= 900

/* The kernel that follows may start, if it was launched as a dependent. */
static __device__ __forceinline__ void let_next_start()
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/* Until the kernels before this one are over and what they wrote can be read. */
static __device__ __forceinline__ void wait_for_previous()
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

#else

static __device__ __forceinline__ void let_next_start() {}
static __device__ __forceinline__ void wait_for_previous() {}

#endif

/* Launches a kernel as a dependent of the one before it, in clusters of `cluster` blocks along x (1: none). */
template <class... Parameters, class... Arguments>
static inline void cuda_launch_dependent(const struct cuda_state *s, cudaStream_t stream, void (*kernel)(Parameters...),
                                         dim3 grid, int threads, int shared_bytes, int cluster,
                                         Arguments &&...arguments)
{
    cudaLaunchAttribute attributes[2] = {};
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = dim3(threads);
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = attributes;
    if (s->compute_capability >= 90) {
        attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (cluster > 1) {
        attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
        attributes[config.numAttrs].val.clusterDim.x = cluster;
        attributes[config.numAttrs].val.clusterDim.y = attributes[config.numAttrs].val.clusterDim.z = 1;
        config.numAttrs++;
    }
    cudaLaunchKernelEx(&config, kernel, arguments...); /* the caller's cuda_check_launch finds what it returns */
}

#endif
