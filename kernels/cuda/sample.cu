/* Sampling. */
#include "kernels/cuda/operations.h"
#include "kernels/cuda/state.cuh"

void cuda_sample(struct backend *b, const struct sample_args *args, backend_stream stream)
{
    (void)args, (void)stream;
    cuda_fail(b, "sample is not implemented for CUDA");
}

int64_t cuda_sample_workspace(const struct cuda_state *s, const struct workspace_query *query)
{
    (void)s, (void)query;
    return 0;
}
