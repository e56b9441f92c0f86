/* Nodes: the processes that share a model, each with as many of its ranks (model/shard.h), node by node. Node 0 has the
 * engine and calls the functions of model.h. Each of these calls the same function in the other nodes (calls.h), which
 * do nothing but wait for such calls (serve.h).
 *
 *     node 0    rank 0, rank 1    listens at an address and a port; a connection to each other node for calls
 *     node 1    rank 2, rank 3    and every two nodes have one for the collective operations of CPUs
 *
 * A thread of each node watches the connections. If a node ends, or cannot go on, the group's failure says so
 * (kernels/group_failure.h), which ends whatever waits, and all nodes end. What a node sends is not encrypted, and a
 * node believes what it is sent: the network must be one that is trusted. */
#ifndef QUIRE_MODEL_NODES_NODES_H
#define QUIRE_MODEL_NODES_NODES_H

#include "kernels/collective.h"

struct group_failure;

struct nodes_options {
    int32_t node, num_nodes, num_ranks; /* num_ranks is a multiple of num_nodes */
    const char *address;                /* of node 0 */
    int port;
    double timeout; /* seconds that a node waits for another to come, to answer, or to do its part of a step */
    /* Lines "NAME: VALUE" of what must be alike in all nodes, the same names in the same order. */
    const char *facts;
};

struct nodes;

/* Connects this node with all others. The sentence of a failure names the nodes that did not come, or what they do not
 * have in common; all nodes that have come get it, too. */
enum status nodes_open(const struct nodes_options *options, struct nodes **out, struct error *err);
/* Tells the others that this node ends: why, if the group has failed. NULL is allowed. */
void nodes_close(struct nodes *n);

struct group_failure *nodes_failure(struct nodes *n);
/* What backend_group_join takes. The id is node 0's, which the others get with NODE_CREATE. */
struct group_nodes nodes_group(const struct nodes *n);
void nodes_set_id(struct nodes *n, const uint8_t id[COLLECTIVE_ID_BYTES]);

/* Of node 0: the least memory_info of the other nodes' devices, if one has less free than *available. */
enum status nodes_memory(struct nodes *n, int64_t *available, int64_t *total, struct error *err);

#endif
