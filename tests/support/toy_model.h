/* A chat model of two small layers for tests of the commands: a config.json (for --load-format dummy: the weights are
 * random) and the tokenizer of models/guide. Its answers are nonsense, but they begin at once and can be of any
 * length. */
#ifndef QUIRE_TESTS_SUPPORT_TOY_MODEL_H
#define QUIRE_TESTS_SUPPORT_TOY_MODEL_H

#include <stdbool.h>

#include "tests/support/temp_folder.h"

#define TOY_MODEL_LENGTH 65536 /* its max_position_embeddings */

/* Writes the checkpoint folder; `guide` is models/guide. Without the chat template if `chat` is false. */
void toy_model_make(struct temp_folder *folder, const char *guide, bool chat);
/* The same with a recurrent layer (gated delta net) and one of attention. */
void toy_model_make_recurrent(struct temp_folder *folder, const char *guide);

#endif
