#include "kernels/cuda/operations.h"
#include "kernels/cuda/state.cuh"

void cuda_rotary_embedding(struct backend *b, const struct rotary_args *args, backend_stream stream)
{
    (void)args, (void)stream;
    cuda_fail(b, "rotary_embedding is not implemented for CUDA");
}
