/* The kernel for matmuls with a batch of tokens on Hopper (compiled for 90a), behind linear and the fused operations.
 */
#ifndef QUIRE_KERNELS_CUDA_MATMUL_LINEAR_WGMMA_CUH
#define QUIRE_KERNELS_CUDA_MATMUL_LINEAR_WGMMA_CUH

#include "kernels/cuda/matmul/matmul.cuh"

enum { LINEAR_WGMMA_MAX_TOKENS = 64 }; /* cuBLAS is faster from 128 on */

/* Computes a matmul without a norm. Returns false, having done nothing, for what it does not take: more tokens, another
 * device, in_features that is not a multiple of 8, addresses that are not a multiple of 16. */
bool linear_wgmma(struct backend *b, const char *operation, const struct matmul *m);

/* The same for quantized rows instead of m->x, and a weight in FP8 with a scale for each output feature; in_features is
 * a multiple of 16. Not MATMUL_GATE. */
bool linear_wgmma_quantized_rows(struct backend *b, const char *operation, const struct matmul *m,
                                 const struct quantized_rows *x);

#endif
