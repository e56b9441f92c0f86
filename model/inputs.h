/* A step's inputs on their way to the device: packed in pinned host memory, then copied to their fixed places in one
 * operation. */
#ifndef QUIRE_MODEL_INPUTS_H
#define QUIRE_MODEL_INPUTS_H

#include "model/model.h"

/* Allocates m->inputs and the staging memory of m->hosts. */
enum status inputs_allocate(struct model *m, struct error *err);

/* Uploads the batch through host->staging. rows > num_seqs: a decode batch is padded to so many sequences, with tokens
 * that are stored nowhere and attend to nothing. */
void inputs_upload(struct model *m, const struct batch *batch, int32_t rows, struct step_host *host);

#endif
