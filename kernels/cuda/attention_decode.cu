/* Paged attention for decode. */
#include "kernels/cuda/operations.h"
#include "kernels/cuda/state.cuh"

void cuda_paged_attention_v1(struct backend *b, const struct attention_args *args, backend_stream stream)
{
    (void)args, (void)stream;
    cuda_fail(b, "paged_attention_v1 is not implemented for CUDA");
}

void cuda_paged_attention_v2(struct backend *b, const struct attention_args *args, backend_stream stream)
{
    (void)args, (void)stream;
    cuda_fail(b, "paged_attention_v2 is not implemented for CUDA");
}

int64_t cuda_attention_workspace(const struct cuda_state *s, const struct workspace_query *query)
{
    (void)s, (void)query;
    return 0;
}
