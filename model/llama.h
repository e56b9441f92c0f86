/* The llama forward pass (Touvron et al., 2023, with the grouped-query attention of the second paper) over one step. */
#ifndef QUIRE_MODEL_LLAMA_H
#define QUIRE_MODEL_LLAMA_H

#include "model/model.h"

/* Puts the whole pass on the main stream: from token ids to m->act.logits [batch->num_samples, vocab_size]. The batch's
 * arrays are read from m->state (on the device), its counts from `batch`. last_sampled: what token_ids -(r+1) refers
 * to. */
void llama_forward(struct model *m, const struct batch *batch, const int32_t *last_sampled);

#endif
