/* Rows of a quantized weight as floats, for kernels that take no quantized ones. */
#ifndef QUIRE_KERNELS_CUDA_MATMUL_DEQUANTIZE_CUH
#define QUIRE_KERNELS_CUDA_MATMUL_DEQUANTIZE_CUH

#include "kernels/cuda/state.cuh"

/* At most so many bytes of floats are made at a time, so that most are still in the L2 cache when they are read. */
enum { SLAB_BYTES = 64 << 20 };

/* out[r][i] dtype = the element of row first + r, 0 <= r < rows, and of input feature i. */
void dequantize_rows(struct backend *b, const struct weight *w, int64_t first, int64_t rows, enum dtype dtype,
                     void *out);

#endif
