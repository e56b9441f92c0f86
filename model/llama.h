/* The llama forward pass (Touvron et al., 2023, with the grouped-query attention of the second paper) over one step. */
#ifndef QUIRE_MODEL_LLAMA_H
#define QUIRE_MODEL_LLAMA_H

#include "model/model.h"

/* Puts the whole pass on the main stream: from m->inputs to m->act.logits [shape->num_samples, vocab_size]. */
void llama_forward(struct model *m, const struct step_shape *shape);

#endif
