/* The chat model of models/guide with padding: its embedding, which is its lm_head too, has as many more rows as there
 * are tokens, and config.json's vocab_size says so. Each row of padding is twice a token's, so that nearly always the
 * largest logits are those of padding. Without padding the model is the guide, so its answers must be the guide's. */
#ifndef QUIRE_TESTS_SUPPORT_PADDED_MODEL_H
#define QUIRE_TESTS_SUPPORT_PADDED_MODEL_H

#include "tests/support/temp_folder.h"

/* Writes the checkpoint folder; `guide` is models/guide. */
void padded_model_make(struct temp_folder *folder, const char *guide);

#endif
