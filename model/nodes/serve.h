/* What a node other than the first does: it calls the functions of model.h that node 0 calls (calls.h), on its own
 * ranks.
 */
#ifndef QUIRE_MODEL_NODES_SERVE_H
#define QUIRE_MODEL_NODES_SERVE_H

#include "model/model.h"
#include "model/nodes/nodes.h"

/* Returns when node 0 has no more calls, or with what has failed. ranks [count] of this node, and those of the drafter
 * or NULL; they must outlive the call. Models are destroyed when it returns. */
enum status nodes_serve(struct nodes *n, const struct model_rank *ranks, const struct model_rank *drafter_ranks,
                        int32_t count, struct error *err);

#endif
