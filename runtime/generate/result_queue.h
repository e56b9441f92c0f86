/* The results of `quire generate` that are not written yet, and which of them is written next: the one that was done
 * first. */
#ifndef QUIRE_RUNTIME_RESULT_QUEUE_H
#define QUIRE_RUNTIME_RESULT_QUEUE_H

#include <stdint.h>

#include "runtime/prompts/result.h"

struct result_list {
    struct result *first, *last;
};

/* Zero-initialise it. */
struct result_queue {
    struct result_list waiting; /* not done, in the order in which they were added */
    struct result_list done;    /* in the order in which they were done */
    int64_t num_results;        /* in both lists */
    int64_t num_unanswered;     /* in `waiting` */
};

/* Takes over a result, the next of the input. It may be done already (a line that failed). */
void result_queue_add(struct result_queue *q, struct result *r);

/* Removes the next result to write, and gives it to the caller. NULL: there is none yet. */
struct result *result_queue_take(struct result_queue *q);
/* Removes the next result, also one that is not done, and gives it to the caller. NULL: the queue is empty. */
struct result *result_queue_take_any(struct result_queue *q);

#endif
