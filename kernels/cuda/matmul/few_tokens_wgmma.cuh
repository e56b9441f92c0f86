/* The kernel for matmuls of FP8 and INT4 weights with few tokens on Hopper (compiled for 90a), behind linear and the
 * fused operations. */
#ifndef QUIRE_KERNELS_CUDA_MATMUL_FEW_TOKENS_WGMMA_CUH
#define QUIRE_KERNELS_CUDA_MATMUL_FEW_TOKENS_WGMMA_CUH

#include "kernels/cuda/matmul/matmul.cuh"

enum { FEW_TOKENS_WGMMA_MAX = 8 };

/* Returns false, having done nothing, for what it does not take: other formats and devices, more tokens (of float16
 * more than half as many), FP8 in groups of other than 128 input features, INT4 that weight_prepare has not reordered
 * or in groups that are neither a multiple of 128 nor the whole row, in_features that is not a multiple of 16,
 * addresses that are not one of 16, x that does not fit into shared memory. */
bool few_tokens_wgmma(struct backend *b, const char *operation, const struct matmul *m);

#endif
