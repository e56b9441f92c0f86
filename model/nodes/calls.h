/* How node 0 has the other nodes call the same functions of model.h as it calls (nodes.h). Where there are no nodes, n
 * NULL, or on another node, these functions do nothing.
 *
 *     nodes_call(n, NODE_CAPTURE, model, NULL, 0);                     the others begin
 *     status = model_for_ranks(...);                                   as do this node's ranks
 *     return nodes_answers(n, status, NULL, err);                      and are waited for
 *
 * A call that cannot be sent is found out by nodes_answers, or by the model's next collect. */
#ifndef QUIRE_MODEL_NODES_CALLS_H
#define QUIRE_MODEL_NODES_CALLS_H

#include "kernels/backend.h"
#include "model/nodes/messages.h"
#include "model/nodes/nodes.h"

/* Sends a call. `model` is 0, or 1 for a drafter. */
void nodes_call(struct nodes *n, enum node_message message, uint32_t model, const void *bytes, size_t count);
void nodes_call_set_sampling_state(struct nodes *n, int32_t state_index, const struct sampling_state *state,
                                   const int32_t *tokens, int32_t num_tokens);
void nodes_call_submit(struct nodes *n, uint32_t model, const struct batch *batch);

/* Waits until all have done what was called last, and returns `mine`, this node's status with its sentence in *err,
 * unless that is OK and another node failed. *added, if not NULL, becomes the least of all nodes. */
enum status nodes_answers(struct nodes *n, enum status mine, int32_t *added, struct error *err);

#endif
