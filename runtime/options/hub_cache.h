/* Models in the cache of huggingface_hub, which `hf download org/name` fills; found without Python or a network.
 *
 * Layout (huggingface_hub: constants.py, file_download.py):
 *   CACHE/models--ORG--NAME/refs/REVISION          the commit of a branch or a tag, 40 hexadecimal digits
 *   CACHE/models--ORG--NAME/snapshots/COMMIT/FILE  a symbolic link to ../../blobs/HASH; written when FILE is complete
 *   CACHE/models--ORG--NAME/blobs/HASH.incomplete  a download that is running or was interrupted
 * CACHE is the first of $HF_HUB_CACHE, $HUGGINGFACE_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub and
 * ~/.cache/huggingface/hub. In a variable, "~" at the beginning and other variables ($NAME, ${NAME}) are expanded; an
 * empty one counts as not set.
 */
#ifndef QUIRE_RUNTIME_HUB_CACHE_H
#define QUIRE_RUNTIME_HUB_CACHE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* Whether a text could name a model: "org/name" or "org/name@revision". The rules for org and name are those of
 * huggingface_hub (validate_repo_id), but there must be an org; a revision has letters, digits and "._-+/", and neither
 * empty components nor "..". So no name leads out of the cache. */
bool hub_cache_is_name(const char *text);

/* Writes the folder of the named snapshot to path[size]. `name` satisfies hub_cache_is_name and may lie in `path`.
 * Without a revision it is "main"; a revision is a branch, a tag, a commit or the first digits of one, 4 at the least.
 *
 * The snapshot must hold config.json and, if `with_weights`, all files of the weights. Weights in another form than
 * safetensors are accepted here: opening the checkpoint says what they are (model/checkpoint/foreign_checkpoint.h).
 *
 * STATUS_IO: it is not there, or not complete. The sentence names the folder looked in and the command that downloads
 * the model. STATUS_INVALID: a ref is no commit, several commits begin with the digits, or a path is too long. */
enum status hub_cache_find(const char *name, bool with_weights, char *path, size_t size, struct error *err);

#endif
