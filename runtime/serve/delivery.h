/* The thread that makes responses of pieces, so that the engine's thread formats and sends nothing: pieces that a step
 * has made come as one list, and what calls then have to send is sent together. Where it falls behind, lists join, and
 * more is sent at a time. */
#ifndef QUIRE_RUNTIME_DELIVERY_H
#define QUIRE_RUNTIME_DELIVERY_H

#include <pthread.h>
#include <stdbool.h>

#include "runtime/serve/call.h"

/* Copies in the order of their pieces; `user` of each is a struct call_prompt. */
struct piece_list {
    struct piece_copy *first, *last;
};
void piece_list_append(struct piece_list *list, struct piece_copy *copy);
/* Moves all of `added` to the end of `list`. */
void piece_list_join(struct piece_list *list, struct piece_list *added);

struct delivery {
    struct service *service;
    struct http_server *http;
    pthread_t thread;
    pthread_mutex_t lock; /* of the rest */
    pthread_cond_t changed;
    struct piece_list pieces;
    bool ending;
};

enum status delivery_start(struct delivery *d, struct service *service, struct error *err);
/* Takes the list, from any thread. */
void delivery_add(struct delivery *d, struct piece_list *pieces);
/* Delivers what is left, and ends the thread. */
void delivery_stop(struct delivery *d);

#endif
