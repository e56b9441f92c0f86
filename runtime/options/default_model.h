/* The model that ships with quire, for commands without --model (and without QUIRE_MODEL, which sets it). */
#ifndef QUIRE_RUNTIME_DEFAULT_MODEL_H
#define QUIRE_RUNTIME_DEFAULT_MODEL_H

#include <stddef.h>

#include "base/status.h"

/* Writes its folder to path[size]: the first of
 *   ../share/quire/models/guide, seen from the folder of the executable: an installed quire
 *   models/guide in the folder of the executable or one of three above it: a build folder inside the source tree
 *   models/guide of the source tree that the executable was built from: a build folder elsewhere
 * Fails if there is none. */
enum status default_model_find(char *path, size_t size, struct error *err);

#endif
