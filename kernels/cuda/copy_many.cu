/* A step's inputs: about a dozen small arrays, which one kernel reads from pinned host memory. Separate copies would
 * cost a launch each and would run one after another. */
#include "kernels/cuda/operations.h"
#include "kernels/cuda/state.cuh"

struct segments {
    struct copy_segment list[COPY_MAX_SEGMENTS];
};

enum { COPY_THREADS = 256, BLOCKS_PER_SEGMENT = 8 };

static __global__ void copy_many_kernel(const __grid_constant__ struct segments segments)
{
    const struct copy_segment s = segments.list[blockIdx.y];
    const int64_t first = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, step = (int64_t)gridDim.x * blockDim.x;
    /* 16 bytes at a time where the addresses allow it: every read crosses the bus to the host. */
    const bool wide = (((uintptr_t)s.destination | (uintptr_t)s.source) & 15) == 0;
    const int64_t wide_count = wide ? s.bytes / 16 : 0;
    for (int64_t i = first; i < wide_count; i += step) ((int4 *)s.destination)[i] = ((const int4 *)s.source)[i];
    for (int64_t i = wide_count * 4 + first; i < s.bytes / 4; i += step)
        ((int32_t *)s.destination)[i] = ((const int32_t *)s.source)[i];
}

void cuda_copy_many(struct backend *b, const struct copy_many_args *args)
{
    struct segments by_value = {};
    if (args->count <= 0) return;
    for (int32_t i = 0; i < args->count; i++) by_value.list[i] = args->segments[i];
    copy_many_kernel<<<dim3(BLOCKS_PER_SEGMENT, (unsigned)args->count), COPY_THREADS, 0, cuda_stream(b, NULL)>>>(
        by_value);
    cuda_check_launch(b, "copy_many");
}
