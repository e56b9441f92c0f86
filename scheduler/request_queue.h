/* Requests in order of arrival: an intrusive doubly-linked list, so that a request is removed in O(1). */
#ifndef QUIRE_SCHEDULER_REQUEST_QUEUE_H
#define QUIRE_SCHEDULER_REQUEST_QUEUE_H

#include "scheduler/sequence.h"

struct request_queue {
    struct request *head, *tail; /* the oldest, the youngest */
    int32_t count;
};

/* Inserts a request that is in no queue at its place in the order of arrival; O(1) at either end. */
void request_queue_insert(struct request_queue *queue, struct request *request);
/* Removes the request from the queue that it is in. */
void request_queue_remove(struct request *request);
/* Moves the request from the queue that it is in to another. */
void request_queue_move(struct request_queue *to, struct request *request);

#endif
