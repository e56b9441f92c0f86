/* Weights whose columns are in an order of their own (struct weight, input_order): the columns of x are put into that
 * order, and then the matmul is that of any other weight. */
#ifndef QUIRE_KERNELS_CUDA_MATMUL_INPUT_ORDER_CUH
#define QUIRE_KERNELS_CUDA_MATMUL_INPUT_ORDER_CUH

#include "kernels/cuda/matmul/matmul.cuh"

/* The tokens of such a matmul whose x fits into the workspace. */
int64_t input_order_most_tokens(struct backend *b, const struct matmul *m);

/* Writes x, normed if there is a gain, to the workspace in the order of m->input_order; *m then has that x, and neither
 * gain nor order. False: there is no room, a token does not fit into shared memory, or sizes or addresses are no
 * multiples of 16 bytes; nothing was done. */
bool input_order_gather(struct backend *b, const char *operation, struct matmul *m);

#endif
