/* A struct batch as bytes: its counts, and of each array what they say is used. */
#ifndef QUIRE_MODEL_NODES_BATCH_MESSAGE_H
#define QUIRE_MODEL_NODES_BATCH_MESSAGE_H

#include "base/array.h"
#include "base/batch.h"

/* Appends the batch. False: memory ran out. */
bool batch_message_append(const struct batch *batch, struct text *out);
/* Fills a batch that has room for such steps. False: these are not the bytes of one. */
bool batch_message_read(const char *bytes, size_t count, struct batch *batch);

#endif
