#include "scheduler/request_queue.h"

#include <stddef.h>

static void insert_after(struct request_queue *queue, struct request *place, struct request *request)
{
    request->queue = queue;
    request->previous = place;
    request->next = place ? place->next : queue->head;
    *(place ? &place->next : &queue->head) = request;
    *(request->next ? &request->next->previous : &queue->tail) = request;
    queue->count++;
}

void request_queue_insert(struct request_queue *queue, struct request *request)
{
    struct request *place = queue->tail;
    if (queue->head && request->arrival < queue->head->arrival) place = NULL;
    while (place && request->arrival < place->arrival) place = place->previous;
    insert_after(queue, place, request);
}

void request_queue_remove(struct request *request)
{
    struct request_queue *queue = request->queue;
    *(request->previous ? &request->previous->next : &queue->head) = request->next;
    *(request->next ? &request->next->previous : &queue->tail) = request->previous;
    queue->count--;
    request->next = request->previous = NULL;
    request->queue = NULL;
}

void request_queue_move(struct request_queue *to, struct request *request)
{
    request_queue_remove(request);
    request_queue_insert(to, request);
}
