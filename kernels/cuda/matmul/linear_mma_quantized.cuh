/* The kernel for matmuls of a quantized weight with a batch of tokens on GPUs without wgmma, behind linear and the
 * fused operations. */
#ifndef QUIRE_KERNELS_CUDA_MATMUL_LINEAR_MMA_QUANTIZED_CUH
#define QUIRE_KERNELS_CUDA_MATMUL_LINEAR_MMA_QUANTIZED_CUH

#include "kernels/cuda/matmul/matmul.cuh"

/* few_tokens_quantized is faster with fewer tokens, cuBLAS with more, dequantizing included. */
enum { LINEAR_MMA_MIN_TOKENS = 9, LINEAR_MMA_MAX_TOKENS = 512 };

/* Whether it computes a matmul of a quantized weight, apart from a norm. It does not take more tokens, MATMUL_GATE,
 * INT4 that weight_prepare has not reordered, groups that are neither 32, 64, a multiple of 128 nor the whole row, rows
 * of the weight or of x that are not a multiple of 16 bytes, addresses that are not a multiple of 16. */
bool linear_mma_takes_quantized(const struct matmul *m);

/* Computes it, without a norm. False: it does not take it, and has done nothing. */
bool linear_mma_quantized(struct backend *b, const char *operation, const struct matmul *m);

#endif
