#include "kernels/cuda/operations.h"
#include "kernels/cuda/state.cuh"

void cuda_update_block_tables(struct backend *b, int32_t *block_tables, int64_t block_table_stride,
                              const struct block_table_delta *deltas, int32_t num_deltas, backend_stream stream)
{
    (void)block_tables, (void)block_table_stride, (void)deltas, (void)num_deltas, (void)stream;
    cuda_fail(b, "update_block_tables is not implemented for CUDA");
}

void cuda_copy_blocks(struct backend *b, void *const *caches, int32_t num_caches, int64_t block_bytes,
                      const struct block_pair *pairs, int32_t num_pairs, backend_stream stream)
{
    (void)caches, (void)num_caches, (void)block_bytes, (void)pairs, (void)num_pairs, (void)stream;
    cuda_fail(b, "copy_blocks is not implemented for CUDA");
}

void cuda_swap_blocks(struct backend *b, void *const *sources, void *const *destinations, int32_t num_caches,
                      int64_t block_bytes, const struct block_pair *pairs, int32_t num_pairs, backend_stream stream)
{
    (void)sources, (void)destinations, (void)num_caches, (void)block_bytes, (void)pairs, (void)num_pairs, (void)stream;
    cuda_fail(b, "swap_blocks is not implemented for CUDA");
}
