/* Queues of requests. They are intrusive: nothing is allocated, and a request leaves from any place of its queue.
 *
 *     QUEUE_FIFO     in the order of insertion; O(1)
 *     QUEUE_SORTED   by rank. O(1) at both ends, otherwise as far as the place is from the last: for few requests
 *     QUEUE_HEAP     a pairing heap (Fredman et al., 1986): only the first is in its place. Insertion is O(1) and
 * removal O(log n) amortized, whatever the order of ranks
 *
 * A request's rank is its priority, then its arrival: the smaller comes first. */
#ifndef QUIRE_SCHEDULER_REQUEST_QUEUE_H
#define QUIRE_SCHEDULER_REQUEST_QUEUE_H

#include "scheduler/sequence.h"

enum queue_kind { QUEUE_FIFO, QUEUE_SORTED, QUEUE_HEAP };

struct request_queue {
    enum queue_kind kind;
    struct request *head, *tail; /* the first, the last; a heap has no tail */
    int32_t count;
};

/* Whether a's rank comes before b's. */
bool request_precedes(const struct request *a, const struct request *b);

/* Inserts a request that is in no queue. */
void request_queue_insert(struct request_queue *queue, struct request *request);
/* Removes the request from the queue that it is in. */
void request_queue_remove(struct request *request);
/* Moves the request from the queue that it is in to another. */
void request_queue_move(struct request_queue *to, struct request *request);

/* Visits all requests of a queue: the one after `request`, NULL: it was the last. Of a heap, those below a request come
 * after it. */
struct request *request_queue_next(const struct request *request);

#endif
