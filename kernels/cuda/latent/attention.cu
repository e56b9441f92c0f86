/* Latent attention: which kernel computes a call. */
#include "kernels/cuda/latent/latent.cuh"
#include "kernels/cuda/operations.h"

void cuda_latent_attention(struct backend *b, const struct latent_attention_args *args)
{
    if (args->num_seqs > 0 && args->max_query_len > 0) cuda_latent_generic(b, args, 0);
}
