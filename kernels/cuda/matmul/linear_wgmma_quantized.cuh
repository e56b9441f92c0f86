/* The kernel for matmuls of a quantized weight with a batch of tokens on Hopper (compiled for 90a), behind linear and
 * the fused operations. */
#ifndef QUIRE_KERNELS_CUDA_MATMUL_LINEAR_WGMMA_QUANTIZED_CUH
#define QUIRE_KERNELS_CUDA_MATMUL_LINEAR_WGMMA_QUANTIZED_CUH

#include "kernels/cuda/matmul/matmul.cuh"

/* Whether it computes a matmul of a quantized weight, apart from a norm; x is not quantized. It does not on other
 * devices, nor with INT4 that weight_prepare has not reordered, groups that are neither 32, 64, a multiple of 128 nor
 * the whole row, rows of the weight or of x that are not a multiple of 16 bytes, addresses that are not a multiple
 * of 16. */
bool linear_wgmma_takes_quantized(struct backend *b, const struct matmul *m);

/* Computes it, without a norm. False: it does not take it, and has done nothing. */
bool linear_wgmma_quantized(struct backend *b, const char *operation, const struct matmul *m);

/* The same, faster, for INT4 with 16-bit scales in groups of 128 or of the whole row, and up to 32 tokens. */
bool linear_wgmma_int4(struct backend *b, const char *operation, const struct matmul *m);

/* By the fastest of these two, few_tokens_wgmma, few_tokens_quantized and linear_mma_quantized; for a weight with an
 * input_order, x is put into that order first. False: none of them takes it, or a norm (m->gain) is faster as a kernel
 * of its own, or the weight dequantized first. */
bool linear_decoding(struct backend *b, const char *operation, const struct matmul *m);

#endif
