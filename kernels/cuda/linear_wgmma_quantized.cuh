/* The kernel for matmuls of a quantized weight with a batch of tokens on Hopper (compiled for 90a), behind linear and
 * the fused operations. */
#ifndef QUIRE_KERNELS_CUDA_LINEAR_WGMMA_QUANTIZED_CUH
#define QUIRE_KERNELS_CUDA_LINEAR_WGMMA_QUANTIZED_CUH

#include "kernels/cuda/matmul.cuh"

/* Computes a matmul of a quantized weight without a norm; x is not quantized. Returns false, having done nothing, for
 * what it does not take: another device, INT4 that weight_prepare has not reordered, groups that are neither 32, 64, a
 * multiple of 128 nor the whole row, rows of the weight or of x that are not a multiple of 16 bytes, addresses that are
 * not a multiple of 16. */
bool linear_wgmma_quantized(struct backend *b, const char *operation, const struct matmul *m);

#endif
