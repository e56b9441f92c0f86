/* Gives a CPU backend the optional fused operations, so that the code that chooses between them and the plain
 * operations is tested without a GPU. Each calls the plain operations that it replaces, in float32. */
#ifndef QUIRE_TESTS_SUPPORT_FUSED_BACKEND_H
#define QUIRE_TESTS_SUPPORT_FUSED_BACKEND_H

#include "kernels/backend.h"

struct fused_calls {
    int norm_linear, linear_residual, gate_up, decode_attention, latent_inputs; /* calls that were taken */
};

/* Steps of more than max_num_tokens tokens are not taken; decode_attention aborts if entries of a state index are no
 * run. *calls counts from 0. One backend at a time. */
void fused_backend_wrap(struct backend *b, int32_t max_num_tokens, struct fused_calls *calls);

#endif
