/* Kernel launches with attributes. */
#ifndef QUIRE_KERNELS_CUDA_LAUNCH_CUH
#define QUIRE_KERNELS_CUDA_LAUNCH_CUH

#include "kernels/cuda/state.cuh"

/* The shape of a launch on the main stream. */
struct cuda_launch {
    dim3 grid;
    int threads;
    int shared_bytes = 0;     /* of dynamic shared memory */
    int cluster = 1;          /* blocks of a cluster, along x; 1: no clusters */
    bool cooperative = false; /* all blocks run at a time, so that they can wait for each other */
};

/* Launches a kernel, as a programmatic dependent (see dependent.cuh) if `dependent`. The caller's cuda_check_launch
 * reports what the launch returns. */
template <class... Parameters, class... Arguments>
static inline void cuda_launch_kernel(const struct cuda_state *s, void (*kernel)(Parameters...),
                                      const struct cuda_launch &launch, bool dependent, Arguments &&...arguments)
{
    cudaLaunchAttribute attributes[3] = {};
    cudaLaunchConfig_t config = {};
    config.gridDim = launch.grid;
    config.blockDim = dim3(launch.threads);
    config.dynamicSmemBytes = launch.shared_bytes;
    config.stream = s->stream;
    config.attrs = attributes;
    if (dependent && s->compute_capability >= 90) {
        attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (launch.cluster > 1) {
        attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
        attributes[config.numAttrs].val.clusterDim.x = launch.cluster;
        attributes[config.numAttrs].val.clusterDim.y = attributes[config.numAttrs].val.clusterDim.z = 1;
        config.numAttrs++;
    }
    if (launch.cooperative) {
        attributes[config.numAttrs].id = cudaLaunchAttributeCooperative;
        attributes[config.numAttrs++].val.cooperative = 1;
    }
    cudaLaunchKernelEx(&config, kernel, arguments...);
}

/* Allows the kernel so much dynamic shared memory, which is needed above 48 KiB. False: cuda_fail was called. */
template <class Kernel>
static inline bool cuda_allow_shared(struct backend *b, const char *operation, Kernel kernel, int bytes)
{
    return cuda_check(b, operation, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
}

#endif
