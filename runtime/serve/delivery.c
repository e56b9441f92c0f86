#include "runtime/serve/delivery.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/thread.h"
#include "runtime/serve/service.h"

/* ---- lists ---- */

void piece_list_append(struct piece_list *list, struct piece_copy *copy)
{
    copy->next = NULL;
    if (list->first)
        list->last->next = copy;
    else
        list->first = copy;
    list->last = copy;
}

void piece_list_join(struct piece_list *list, struct piece_list *added)
{
    if (!added->first) return;
    if (list->first)
        list->last->next = added->first;
    else
        list->first = added->first;
    list->last = added->last;
    *added = (struct piece_list){0};
}

/* ---- the thread ---- */

/* Returns the calls that were touched. */
static struct call *take_pieces(struct piece_copy *first, double now)
{
    struct call *touched = NULL;
    struct piece_copy *next;
    for (struct piece_copy *copy = first; copy; copy = next) {
        struct call_prompt *p = copy->user;
        struct call *c = p->call;
        next = copy->next;
        call_take(p, &copy->piece, now);
        if (copy != &p->spare) free(copy);
        if (c->is_touched) continue;
        c->is_touched = true;
        c->next_touched = touched;
        touched = c;
    }
    return touched;
}

static void deliver(struct delivery *d, struct piece_copy *first)
{
    const double now = clock_seconds();
    struct call *next, *touched = take_pieces(first, now);
    http_send_several_begin(d->http);
    for (struct call *c = touched; c; c = next) {
        next = c->next_touched;
        c->is_touched = false;
        const bool read = call_send(c);
        if (c->num_open > 0 && !read) service_abandon(d->service, c);
        if (c->num_open > 0) continue;
        const int32_t num_answers = c->num_answers;
        call_end(c, now);
        service_ended(d->service, num_answers);
    }
    http_send_several_end(d->http);
}

static void *run(void *context)
{
    struct delivery *d = context;
    pthread_mutex_lock(&d->lock);
    while (d->pieces.first || !d->ending) {
        while (!d->pieces.first && !d->ending) pthread_cond_wait(&d->changed, &d->lock);
        struct piece_copy *first = d->pieces.first;
        d->pieces = (struct piece_list){0};
        pthread_mutex_unlock(&d->lock);
        if (first) deliver(d, first);
        pthread_mutex_lock(&d->lock);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

enum status delivery_start(struct delivery *d, struct service *service, struct error *err)
{
    d->service = service;
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->changed, NULL);
    if (thread_start(&d->thread, run, d) == 0) return STATUS_OK;
    pthread_cond_destroy(&d->changed);
    pthread_mutex_destroy(&d->lock);
    return error_set(err, STATUS_OUT_OF_MEMORY, "the system gives no thread for the responses");
}

void delivery_add(struct delivery *d, struct piece_list *pieces)
{
    if (!pieces->first) return;
    pthread_mutex_lock(&d->lock);
    piece_list_join(&d->pieces, pieces);
    pthread_cond_signal(&d->changed);
    pthread_mutex_unlock(&d->lock);
}

void delivery_stop(struct delivery *d)
{
    pthread_mutex_lock(&d->lock);
    d->ending = true;
    pthread_cond_signal(&d->changed);
    pthread_mutex_unlock(&d->lock);
    pthread_join(d->thread, NULL);
    pthread_cond_destroy(&d->changed);
    pthread_mutex_destroy(&d->lock);
}
