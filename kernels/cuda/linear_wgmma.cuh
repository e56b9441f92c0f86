/* The kernel behind linear and the fused operations for a batch of tokens on Hopper (compute capability 9.0). */
#ifndef QUIRE_KERNELS_CUDA_LINEAR_WGMMA_CUH
#define QUIRE_KERNELS_CUDA_LINEAR_WGMMA_CUH

#include "kernels/cuda/linear_few_tokens.cuh"

enum { LINEAR_WGMMA_MAX_TOKENS = 64 }; /* with 128 cuBLAS is faster */

/* Computes a product without a norm. Returns false, having done nothing, for what it does not take: more tokens,
 * float32, another device, columns that are not a multiple of 8, addresses that are not a multiple of 16. */
bool linear_wgmma(struct backend *b, const char *operation, const struct few_rows_product *p, cudaStream_t stream);

#endif
