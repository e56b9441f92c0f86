#include "kernels/cuda/operations.h"
#include "kernels/cuda/state.cuh"

void cuda_reshape_and_cache(struct backend *b, const struct reshape_and_cache_args *args, backend_stream stream)
{
    (void)args, (void)stream;
    cuda_fail(b, "reshape_and_cache is not implemented for CUDA");
}
