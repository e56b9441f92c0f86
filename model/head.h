/* What a head (struct head_spec) has of its files and of its target. */
#ifndef QUIRE_MODEL_HEAD_H
#define QUIRE_MODEL_HEAD_H

#include "base/status.h"
#include "model/model_spec.h"

/* Sets what config.json does not say. Of EAGLE-3: how the files call layers, whether they have an embedding and an
 * lm_head, and whether they map ids. Of MTP: whether each expert is a tensor, and which matrices are floats. A folder
 * without readable files leaves *head as it is: opening the weights tells why. */
void head_read_files(const char *folder, struct model_spec *head);

/* Sets what follows from the target, and checks that the two fit. INVALID: they do not. */
enum status head_fit(struct model_spec *head, const struct model_spec *target, struct error *err);

#endif
