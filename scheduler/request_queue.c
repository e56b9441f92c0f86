#include "scheduler/request_queue.h"

#include <stddef.h>

bool request_precedes(const struct request *a, const struct request *b)
{
    return a->priority != b->priority ? a->priority < b->priority : a->arrival < b->arrival;
}

/* ---- lists ---- */

static void list_insert_after(struct request_queue *queue, struct request *place, struct request *request)
{
    request->previous = place;
    request->next = place ? place->next : queue->head;
    *(place ? &place->next : &queue->head) = request;
    *(request->next ? &request->next->previous : &queue->tail) = request;
}

static void list_insert(struct request_queue *queue, struct request *request)
{
    struct request *place = queue->tail;
    if (queue->kind == QUEUE_SORTED && queue->head && request_precedes(request, queue->head)) place = NULL;
    while (queue->kind == QUEUE_SORTED && place && request_precedes(request, place)) place = place->previous;
    list_insert_after(queue, place, request);
}

static void list_remove(struct request_queue *queue, struct request *request)
{
    *(request->previous ? &request->previous->next : &queue->head) = request->next;
    *(request->next ? &request->next->previous : &queue->tail) = request->previous;
}

/* ---- pairing heaps ----
 *
 * A heap is a tree in which no request precedes the one above it. `child` is the first of those directly below; `next`
 * is the following one of them; `previous` the one before, or of the first the one above. */

/* Makes one heap of two, either of which may be empty. Their roots have no siblings. */
static struct request *heap_meld(struct request *a, struct request *b)
{
    if (!a || !b) return a ? a : b;
    struct request *first = request_precedes(b, a) ? b : a, *second = first == a ? b : a;
    second->previous = first;
    second->next = first->child;
    if (first->child) first->child->previous = second;
    first->child = second;
    return first;
}

/* Makes one heap of a list of siblings: melds pairs from left to right, and then the pairs from right to left. */
static struct request *heap_meld_all(struct request *list)
{
    struct request *pairs = NULL, *heap = NULL;
    while (list) {
        struct request *a = list, *b = a->next;
        list = b ? b->next : NULL;
        a->next = a->previous = NULL;
        if (b) b->next = b->previous = NULL;
        struct request *pair = heap_meld(a, b);
        pair->next = pairs;
        pairs = pair;
    }
    while (pairs) {
        struct request *pair = pairs;
        pairs = pair->next;
        pair->next = NULL;
        heap = heap_meld(heap, pair);
    }
    return heap;
}

static void heap_remove(struct request_queue *queue, struct request *request)
{
    struct request *below = heap_meld_all(request->child);
    struct request *before = request->previous;
    request->child = NULL;
    if (!before) {
        queue->head = below;
        return;
    }
    *(before->child == request ? &before->child : &before->next) = request->next;
    if (request->next) request->next->previous = before;
    queue->head = heap_meld(queue->head, below);
}

static struct request *heap_next(const struct request *request)
{
    if (request->child) return request->child;
    while (request && !request->next) {
        while (request->previous && request->previous->child != request) request = request->previous;
        request = request->previous;
    }
    return request ? request->next : NULL;
}

/* ---- queues ---- */

void request_queue_insert(struct request_queue *queue, struct request *request)
{
    request->queue = queue;
    queue->count++;
    if (queue->kind == QUEUE_HEAP)
        queue->head = heap_meld(queue->head, request);
    else
        list_insert(queue, request);
}

void request_queue_remove(struct request *request)
{
    struct request_queue *queue = request->queue;
    if (queue->kind == QUEUE_HEAP)
        heap_remove(queue, request);
    else
        list_remove(queue, request);
    queue->count--;
    request->next = request->previous = NULL;
    request->queue = NULL;
}

void request_queue_move(struct request_queue *to, struct request *request)
{
    request_queue_remove(request);
    request_queue_insert(to, request);
}

struct request *request_queue_next(const struct request *request)
{
    return request->queue->kind == QUEUE_HEAP ? heap_next(request) : request->next;
}
