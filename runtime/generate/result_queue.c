#include "runtime/generate/result_queue.h"

#include <stddef.h>

static void list_append(struct result_list *list, struct result *r)
{
    r->previous = list->last;
    r->next = NULL;
    if (list->last)
        list->last->next = r;
    else
        list->first = r;
    list->last = r;
}

static void list_remove(struct result_list *list, struct result *r)
{
    if (r->previous)
        r->previous->next = r->next;
    else
        list->first = r->next;
    if (r->next)
        r->next->previous = r->previous;
    else
        list->last = r->previous;
    r->previous = r->next = NULL;
}

static void note_done(struct result *r)
{
    struct result_queue *q = r->queue;
    q->num_unanswered--;
    list_remove(&q->waiting, r);
    list_append(&q->done, r);
}

void result_queue_add(struct result_queue *q, struct result *r)
{
    list_append(r->done ? &q->done : &q->waiting, r);
    q->num_results++;
    if (r->done) return;
    q->num_unanswered++;
    r->queue = q;
    r->when_done = note_done;
}

static struct result *take_first(struct result_queue *q, struct result_list *list)
{
    struct result *r = list->first;
    if (!r) return NULL;
    list_remove(list, r);
    q->num_results--;
    return r;
}

struct result *result_queue_take(struct result_queue *q)
{
    return take_first(q, &q->done);
}

struct result *result_queue_take_any(struct result_queue *q)
{
    struct result *r = take_first(q, &q->done);
    return r ? r : take_first(q, &q->waiting);
}
