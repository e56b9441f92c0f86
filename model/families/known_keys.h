/* The keys of config.json known to change what a model computes, over all families that quire has met. */
#ifndef QUIRE_MODEL_FAMILIES_KNOWN_KEYS_H
#define QUIRE_MODEL_FAMILIES_KNOWN_KEYS_H

#include "base/json.h"
#include "model/model_spec.h"

/* Fails if the file gives a known key that its family neither reads nor ignores, unless its value is the neutral one:
 * the one with which the model computes what *spec says. reads, ignores: words (base/words.h). */
void known_keys_check(struct json_reader *r, const char *model_type, const char *reads, const char *ignores,
                      const struct model_spec *spec);

#endif
