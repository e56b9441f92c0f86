/* What one of several ranks has of a model (tensor parallelism: Shoeybi et al., 2019).
 *
 * A rank has num_heads / num_ranks heads of each mixer, and with them rows of the matrices that make q, k, v, gates and
 * states, and columns of o; intermediate_size / num_ranks features of each MLP and expert, so rows of gate and up, and
 * columns of down; and vocab_size / num_ranks tokens, so rows of embedding and lm_head. A KV head that several ranks
 * need is in each of them. Norms, routers, latents and all else are whole in each rank.
 *
 * What o and down compute of their columns is a share of a sum, which an all-reduce adds (kernels/collective.h). A bias
 * of theirs is rank 0's alone. */
#ifndef QUIRE_MODEL_SHARD_H
#define QUIRE_MODEL_SHARD_H

#include "model/tensors.h"

/* *part = the sizes of one rank, with part->whole = whole, which must outlive it. One rank: *part is a copy of *whole.
 * UNSUPPORTED, with a sentence that says what does not divide by num_ranks, or which part of the model quire does not
 * share, and what to do. */
enum status model_spec_shard(const struct model_spec *whole, int32_t rank, int32_t num_ranks, struct model_spec *part,
                             struct error *err);

/* A tensor of a rank's table: *t has the sizes that follow from the rank's spec, `whole` is the same tensor of the
 * whole model. Sets where the rank's rows and columns lie in the file. */
void tensor_shard(struct tensor *t, const struct tensor *whole, const struct model_spec *part);

#endif
