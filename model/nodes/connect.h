/* How nodes find each other. Node 0 listens; every other node connects to it and says who it is. When all have come and
 * have in common what they must, node 0 tells each where the others listen, and each connects to those before it. */
#ifndef QUIRE_MODEL_NODES_CONNECT_H
#define QUIRE_MODEL_NODES_CONNECT_H

#include "model/nodes/nodes_state.h"

/* Fills n->control and n->data. */
enum status nodes_connect(struct nodes *n, const struct nodes_options *options, struct error *err);

#endif
