/* Programmatic dependent launches (compute capability 9.0 and later; PTX ISA, "griddepcontrol"). A dependent kernel may
 * start while the kernel before it still runs: as soon as every block of that kernel has called let_next_start or has
 * ended. So the launch costs no time, and neither does reading what no kernel of the step writes (weights, tables).
 *
 * Rules:
 * - A dependent kernel calls wait_for_previous before it reads what earlier kernels write, and before it writes
 *   anything, because earlier kernels may still read the old contents.
 * - At least one block of every dependent kernel calls wait_for_previous before it ends. Otherwise this kernel could
 *   end before its predecessor, and the next kernel would wait for this one only.
 * - The first kernel of a step is launched normally, so that the step's inputs have arrived for all kernels after it.
 */
#ifndef QUIRE_KERNELS_CUDA_DEPENDENT_CUH
#define QUIRE_KERNELS_CUDA_DEPENDENT_CUH

#include "kernels/cuda/launch.cuh"

#if __CUDA_ARCH__ >= 900

/* The next kernel may start, if it was launched as a dependent. */
static __device__ __forceinline__ void let_next_start()
{
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

/* Waits until the kernels before this one have ended and what they wrote can be read. */
static __device__ __forceinline__ void wait_for_previous()
{
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

#else

static __device__ __forceinline__ void let_next_start() {}
static __device__ __forceinline__ void wait_for_previous() {}

#endif

/* Launches a kernel as a dependent of the one before it. */
template <class... Parameters, class... Arguments>
static inline void cuda_launch_dependent(const struct cuda_state *s, void (*kernel)(Parameters...),
                                         const struct cuda_launch &launch, Arguments &&...arguments)
{
    cuda_launch_kernel(s, kernel, launch, true, arguments...);
}

/* Launches a kernel of an operation as a dependent, with any amount of shared memory, and checks the launch. */
template <class... Parameters, class... Arguments>
static inline void cuda_run_dependent(struct backend *b, const char *operation, void (*kernel)(Parameters...),
                                      const struct cuda_launch &launch, Arguments &&...arguments)
{
    const struct cuda_state *s = cuda_use(b);
    if (!cuda_allow_shared(b, operation, kernel, launch.shared_bytes)) return;
    cuda_launch_dependent(s, kernel, launch, arguments...);
    cuda_check_launch(b, operation);
}

#endif
