/* Paged attention for prefill and chunked prefill. */
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/operations.h"

void cuda_paged_attention_prefill(struct backend *b, const struct attention_args *args, backend_stream stream)
{
    cuda_attention_generic(b, args, cuda_stream(b, stream));
}
