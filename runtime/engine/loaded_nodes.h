/* Several processes that share a model (model/nodes/nodes.h), as options ask for them. Private to runtime/engine/. */
#ifndef QUIRE_RUNTIME_LOADED_NODES_H
#define QUIRE_RUNTIME_LOADED_NODES_H

#include "runtime/engine/loaded_model_state.h"

/* Where options ask for several nodes: connects this one with the others. */
enum status loaded_nodes_open(const struct engine_options *o, struct loaded_model *l, struct error *err);
/* On another node than the first, with ranks that are open: computes what node 0 asks for, until it ends. */
enum status loaded_nodes_serve(struct loaded_model *l, struct error *err);
/* After the model and the ranks. A status that is not OK is told to the other nodes, with its sentence. */
void loaded_nodes_close(struct loaded_model *l, enum status status, const struct error *why);

#endif
