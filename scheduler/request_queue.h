/* Requests in order of arrival: intrusive and doubly linked, so that whoever ends leaves in O(1). */
#ifndef QUIRE_SCHEDULER_REQUEST_QUEUE_H
#define QUIRE_SCHEDULER_REQUEST_QUEUE_H

#include "scheduler/sequence.h"

struct request_queue {
    struct request *head, *tail; /* the oldest, the youngest */
    int32_t count;
};

/* Puts the request, which is in no queue, at its place; O(1) where that is one of the two ends. */
void request_queue_insert(struct request_queue *queue, struct request *request);
/* Takes it out of the queue that it is in. */
void request_queue_remove(struct request *request);

#endif
