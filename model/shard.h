/* What one of several ranks has of a model (tensor parallelism: Shoeybi et al., 2019).
 *
 * A rank has num_heads / num_ranks heads of each mixer, and with them rows of the matrices that make q, k, v, gates and
 * states, and columns of o; intermediate_size / num_ranks features of each MLP and expert, so rows of gate and up, and
 * columns of down; and vocab_size / num_ranks tokens, so rows of embedding and lm_head. A KV head, or a key head of a
 * recurrent layer, that several ranks need is in each of them. Where equal parts of intermediate_size would cut groups
 * or blocks of a quantized matrix, some ranks have a group more than others. Of a short convolution a rank has
 * hidden_size / num_ranks channels. Norms of what ranks have between them, all heads of q and k or a recurrent mixer's,
 * are shared as that is (all_norm of kernels/collective.h). Routers, latents and all else are whole in each rank.
 *
 * With spec->expert_parallel experts are not cut: a rank has num_experts / num_ranks of them, the first ranks one more
 * where that does not divide. It routes each token as the others do, computes those of its experts that it has, and the
 * results of all ranks are shares of the sum over them (GShard: Lepikhin et al., 2020, but tokens are not sent, since
 * each rank has all of them). A layer's MLP beside the experts is cut as others are.
 *
 * What o and down compute of their columns is a share of a sum, which an all-reduce adds (kernels/collective.h). So is
 * what a matrix computes of such a share: the one that projects the sum of experts' latents back has all its columns,
 * and is_share, too. Where the columns of o or down are sorted by group (weight.input_order), a rank has a part of the
 * sorted ones; the ranks gather what these multiply (layer_last_matmul). A bias of any of them is rank 0's alone: the
 * table of another rank lacks it. But whole experts have theirs. */
#ifndef QUIRE_MODEL_SHARD_H
#define QUIRE_MODEL_SHARD_H

#include "model/tensors.h"

/* *part = the sizes of one rank, with part->whole = whole, which must outlive it. One rank: *part is a copy of *whole.
 * UNSUPPORTED, with a sentence that says what does not divide by num_ranks, or which part of the model quire does not
 * share, and what to do. */
enum status model_spec_shard(const struct model_spec *whole, int32_t rank, int32_t num_ranks, struct model_spec *part,
                             struct error *err);

/* The tokens of a vocabulary that a rank has rows for: all ranks have equally many, but the last one fewer if that
 * does not divide. */
struct token_range {
    int32_t first, count;
};
struct token_range shard_tokens(int32_t vocab_size, int32_t rank, int32_t num_ranks);

/* The input features of o, of a recurrent mixer's o beside attention, or of down: the first of the rank, and how many
 * all ranks have. */
struct column_range {
    int64_t first, total;
};
struct column_range shard_columns(const struct model_spec *part, int32_t layer, enum tensor_role role);

/* *table, which has the sizes that follow from the rank's spec, becomes that of what the rank has; `whole` is the whole
 * model's, with the same tensors in the same order, and those of other experts between them. Sets where the rows and
 * columns lie in the files, gives the convolution of a recurrent layer a tensor each for q, k and v, whose channels do
 * not follow each other there, and takes out biases that rank 0 alone has. UNSUPPORTED: a rank would have parts of what
 * shares a scale, or a word, of a quantized matrix. */
enum status tensor_table_shard(struct tensor_table *table, const struct tensor_table *whole,
                               const struct model_spec *part, struct error *err);

#endif
