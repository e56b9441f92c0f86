/* The matmuls of experts for few tokens (few_experts.cu). */
#ifndef QUIRE_KERNELS_CUDA_EXPERTS_FEW_EXPERTS_H
#define QUIRE_KERNELS_CUDA_EXPERTS_FEW_EXPERTS_H

#include "kernels/backend.h"

/* Put experts_gate_up and experts_down on the main stream. False: nothing was done, because there are too many tokens,
 * or the kernels do not have the types, the format or the shape. */
bool few_experts_gate_up(struct backend *b, const struct experts_gate_up_args *args);
bool few_experts_down(struct backend *b, const struct experts_down_args *args);

/* few_experts_mma.cu: by quantized weights, and on Hopper by floats. */
bool few_experts_mma_gate_up(struct backend *b, const struct experts_gate_up_args *args);
bool few_experts_mma_down(struct backend *b, const struct experts_down_args *args);

#endif
