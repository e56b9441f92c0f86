/* Checkpoints in forms that quire does not read: GGUF, PyTorch's pickles, adapters, the layouts of Meta and Mistral.
 * The sentence says what was found and what to name instead. */
#ifndef QUIRE_MODEL_CHECKPOINT_FOREIGN_CHECKPOINT_H
#define QUIRE_MODEL_CHECKPOINT_FOREIGN_CHECKPOINT_H

#include <stdbool.h>

#include "base/log.h"
#include "base/status.h"

/* Whether a folder holds something that foreign_checkpoint_refuse knows, other than safetensors. */
bool foreign_checkpoint_found(const char *folder);

/* Warns of what a folder with a whole checkpoint holds and quire does not use: an adapter. */
void foreign_checkpoint_warn(const char *folder, const struct log *log);

/* Refuses a file in place of a folder (STATUS_IO), or a folder in which the file `missing` was looked for in vain
 * (STATUS_IO; STATUS_UNSUPPORTED if it holds another form). Returns the status. */
enum status foreign_checkpoint_refuse(const char *path, const char *missing, struct error *err);

#endif
