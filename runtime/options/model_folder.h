/* From --model to the folder that it means. */
#ifndef QUIRE_RUNTIME_MODEL_FOLDER_H
#define QUIRE_RUNTIME_MODEL_FOLDER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "runtime/engine/engine.h"

/* Replaces *model by a folder, which is written to path[size] where it is not what was given:
 *   NULL                         the model that ships with quire (default_model_find)
 *   org/name, org/name@revision  unless a file or folder has that name: a snapshot in the Hugging Face cache
 *                                (hub_cache.h), where weights are looked for if `with_weights`;
 *                                @revision may also be given as `revision`, else NULL
 *   any other text               a folder as it stands
 * A folder that does not exist is left to who opens it, but for a name without a slash: STATUS_IO, with a sentence
 * about names in the cache. STATUS_INVALID: a revision of what is no name, or a second one. `path` must live as long as
 * *model is used. */
enum status model_folder_resolve(const char **model, const char *revision, bool with_weights, char *path, size_t size,
                                 struct error *err);

/* Resolves options->model, and the draft model's in options->speculative; weights are looked for unless dummy ones are
 * asked for. */
enum status model_folder_of_engine(struct engine_options *options, char *path, size_t size, struct error *err);

/* Writes the folder of the model that ships with quire to path[size]: the first of
 *   ../share/quire/models/guide, seen from the folder of the executable: an installed quire
 *   models/guide in the folder of the executable or one of three above it: a build folder inside the source tree
 *   models/guide of the source tree that the executable was built from: a build folder elsewhere
 * Fails if there is none. */
enum status default_model_find(char *path, size_t size, struct error *err);

#endif
