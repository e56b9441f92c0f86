/* The commands as one of several processes that share a model (--nnodes). Node 0 runs the command; the other nodes get
 * the same command line, and compute what it asks them for. */
#ifndef QUIRE_RUNTIME_NODE_H
#define QUIRE_RUNTIME_NODE_H

#include "runtime/engine/engine_options.h"

/* Finds out what was not given: which node this is and where node 0 is, from the environment that mpirun or srun makes.
 * Does nothing for one node. INVALID: it is not known which node this is. */
enum status node_find(struct engine_options *o, struct error *err);
/* The same, and what all nodes must have alike, with the folder of the model known. */
enum status node_prepare(struct engine_options *o, struct error *err);
/* After either: whether another process runs the command. */
bool node_serves(const struct engine_options *o);
/* Does what this node is for, and returns the exit status. `command` begins the sentence of a failure. */
int node_run(const struct engine_options *o, const char *command);
/* Of node 0, where the command turns out to need no engine: tells the other nodes. For one node nothing. */
void node_dismiss_others(const struct engine_options *o);

#endif
