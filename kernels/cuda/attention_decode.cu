/* Paged attention for decode. */
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/operations.h"

void cuda_paged_attention_v1(struct backend *b, const struct attention_args *args, backend_stream stream)
{
    cuda_attention_generic(b, args, cuda_stream(b, stream));
}

void cuda_paged_attention_v2(struct backend *b, const struct attention_args *args, backend_stream stream)
{
    cuda_attention_generic(b, args, cuda_stream(b, stream));
}

int64_t cuda_attention_workspace(const struct cuda_state *s, const struct workspace_query *query)
{
    (void)s, (void)query;
    return 0;
}
