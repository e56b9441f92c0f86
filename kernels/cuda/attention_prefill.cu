/* Paged attention for prefill and chunked prefill. */
#include "kernels/cuda/operations.h"
#include "kernels/cuda/state.cuh"

void cuda_paged_attention_prefill(struct backend *b, const struct attention_args *args, backend_stream stream)
{
    (void)args, (void)stream;
    cuda_fail(b, "paged_attention_prefill is not implemented for CUDA");
}
