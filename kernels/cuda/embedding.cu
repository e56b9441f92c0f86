#include "kernels/cuda/operations.h"
#include "kernels/cuda/state.cuh"

void cuda_embedding(struct backend *b, void *out, const int32_t *ids, const int32_t *last_sampled, int32_t num_tokens,
                    const struct weight *table, enum dtype dtype, backend_stream stream)
{
    (void)out, (void)ids, (void)last_sampled, (void)num_tokens, (void)table, (void)dtype, (void)stream;
    cuda_fail(b, "embedding is not implemented for CUDA");
}

void cuda_gather_rows(struct backend *b, void *out, const void *x, const int32_t *rows, int32_t num_rows, int32_t size,
                      enum dtype dtype, backend_stream stream)
{
    (void)out, (void)x, (void)rows, (void)num_rows, (void)size, (void)dtype, (void)stream;
    cuda_fail(b, "gather_rows is not implemented for CUDA");
}
