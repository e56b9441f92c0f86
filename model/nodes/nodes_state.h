/* What struct nodes is made of, and how messages go. Private to model/nodes/. */
#ifndef QUIRE_MODEL_NODES_NODES_STATE_H
#define QUIRE_MODEL_NODES_NODES_STATE_H

#include <pthread.h>

#include "base/array.h"
#include "base/socket.h"
#include "kernels/group_failure.h"
#include "model/nodes/messages.h"
#include "model/nodes/nodes.h"

struct nodes {
    struct nodes_options options; /* without strings */
    struct group_failure *failure;
    int control[COLLECTIVE_MAX_RANKS]; /* node 0: to each node; another: [0]; else -1 */
    int data[COLLECTIVE_MAX_RANKS];    /* to each node; its own: -1 */
    struct text message;               /* that is being made, or was received */
    uint8_t id[COLLECTIVE_ID_BYTES];
    int wake[2]; /* a pipe: closing its end [1] ends the thread that watches */
    pthread_t watcher;
    bool watched;
    bool ended; /* nothing more is to be told to the others */
};

/* Sends n->message, to whose bytes node_message_begin and text_append have added. */
bool node_message_begin(struct nodes *n, enum node_message message, uint32_t model);
enum socket_result node_message_send(struct nodes *n, int32_t to, double end);
/* Receives the next message: its bytes are n->message. */
enum socket_result node_message_receive(struct nodes *n, int32_t from, double end, struct node_header *header);

/* What has failed: what another thread has found out or finds out in a moment, or else this. err may be NULL. */
enum status node_failure(struct nodes *n, int32_t node, enum socket_result result, struct error *err);

#endif
