/* The connections of a worker: when they begin and end, and how long they may wait. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "base/clock.h"
#include "runtime/serve/http_state.h"

static const double SECONDS_IF_FULL = 1; /* that a connection without a request is kept where others wait */

/* ---- the lists of connections ---- */

static void unlink_connection(struct http_connection *c)
{
    struct http_connection_list *l = c->list;
    *(c->previous ? &c->previous->next : &l->first) = c->next;
    *(c->next ? &c->next->previous : &l->last) = c->previous;
}

static void append_connection(struct http_connection_list *l, struct http_connection *c)
{
    c->list = l;
    c->previous = l->last;
    c->next = NULL;
    *(l->last ? &l->last->next : &l->first) = c;
    l->last = c;
}

static void move_connection(struct http_connection *c, struct http_connection_list *l)
{
    unlink_connection(c);
    append_connection(l, c);
    c->since = clock_seconds();
}

void http_connection_set_exchange(struct http_connection *c, struct http_exchange *x)
{
    struct http_worker *w = c->worker;
    w->num_exchanges += (x != NULL) - (c->exchange != NULL);
    c->exchange = x;
    move_connection(c, x ? &w->reading : &w->waiting);
}

void http_connection_set_whole(struct http_connection *c)
{
    move_connection(c, &c->worker->busy);
}

/* Closes connections that have been in the list for so long: libmicrohttpd sees their end. Returns when the next will
 * have been. */
static double close_late(struct http_worker *w, struct http_connection_list *l, double now, double seconds)
{
    while (l->first) {
        struct http_connection *c = l->first;
        if (now < c->since + seconds) return c->since + seconds;
        shutdown(c->fd, SHUT_RDWR);
        move_connection(c, &w->busy);
    }
    return HTTP_NEVER;
}

bool http_server_is_full(struct http_server *s)
{
    return atomic_load(&s->num_connections) >= s->options.max_connections;
}

/* How long a connection may wait for the head of a request. A server that ends awaits none, and one that is full
 * prefers those who want to connect. */
static double patience(struct http_server *s)
{
    const double idle = s->options.idle_seconds;
    return atomic_load(&s->closing) ? 0 : http_server_is_full(s) && idle > SECONDS_IF_FULL ? SECONDS_IF_FULL : idle;
}

/* A request must be whole in time, also if a byte of it comes now and then. That bytes come at all libmicrohttpd sees
 * to. */
double http_connections_close_idle(struct http_worker *w, double now)
{
    enum { BODY = 5 }; /* a body may take so many times as long as a head */
    const double head = close_late(w, &w->waiting, now, patience(w->server));
    const double body = close_late(w, &w->reading, now, BODY * w->server->options.idle_seconds);
    return head < body ? head : body;
}

/* ---- a connection begins and ends ---- */

static void write_peer(struct MHD_Connection *handle, char *out, size_t size)
{
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(handle, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *a = info ? info->client_addr : NULL;
    snprintf(out, size, "unix");
    if (a && a->sa_family == AF_INET)
        inet_ntop(AF_INET, &((const struct sockaddr_in *)a)->sin_addr, out, (socklen_t)size);
    if (!a || a->sa_family != AF_INET6) return;
    const struct in6_addr *ip = &((const struct sockaddr_in6 *)a)->sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(ip))
        inet_ntop(AF_INET, &ip->s6_addr[12], out, (socklen_t)size);
    else
        inet_ntop(AF_INET6, ip, out, (socklen_t)size);
}

static void begin_connection(struct http_worker *w, struct MHD_Connection *handle, void **context)
{
    w->was_told = true;
    struct http_connection *c = *context = calloc(1, sizeof *c);
    if (!c) return;
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLET, .data.ptr = c};
    c->worker = w;
    c->handle = handle;
    c->fd = MHD_get_connection_info(handle, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    c->since = clock_seconds();
    write_peer(handle, c->peer, sizeof c->peer);
    append_connection(&w->waiting, c);
    /* Without it the end of this connection is noticed when something is sent. */
    epoll_ctl(w->epoll, EPOLL_CTL_ADD, c->fd, &event);
}

void http_worker_count_connection(struct http_worker *w, int change)
{
    struct http_server *s = w->server;
    atomic_fetch_add(&w->connections, change);
    const int before = atomic_fetch_add(&s->num_connections, change);
    /* The server was full, or now is. */
    if (before == s->options.max_connections) http_worker_wake(&s->workers[0], true);
    if (before + change == s->options.max_connections)
        for (int i = 0; i < s->num_workers; i++) http_worker_wake(&s->workers[i], true);
}

static void forget_half_closed(struct http_worker *w, struct http_connection *c)
{
    struct http_connection **at = &w->half_closed;
    while (*at && *at != c) at = &(*at)->next_half_closed;
    if (*at) *at = c->next_half_closed;
}

static void end_connection(struct http_worker *w, void **context)
{
    struct http_connection *c = *context;
    http_worker_count_connection(w, -1);
    if (!c) return;
    epoll_ctl(w->epoll, EPOLL_CTL_DEL, c->fd, NULL);
    if (c->half_closed) forget_half_closed(w, c);
    unlink_connection(c);
    free(c);
    *context = NULL;
}

void http_connection_notice(void *worker, struct MHD_Connection *handle, void **context,
                            enum MHD_ConnectionNotificationCode code)
{
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        begin_connection(worker, handle, context);
    else
        end_connection(worker, context);
}

void http_connection_half_closed(struct http_connection *c)
{
    struct http_exchange *x = c->exchange;
    if (!c->half_closed) {
        c->next_half_closed = c->worker->half_closed;
        c->worker->half_closed = c;
    }
    c->half_closed = true;
    if (!x) return;
    pthread_mutex_lock(&x->lock);
    if (x->suspended) {
        http_exchange_lose(x);
        http_exchange_resume(x);
    }
    pthread_mutex_unlock(&x->lock);
}

/* libmicrohttpd 0.9.75 overlooks the end of what a client sends if it came together with the last bytes: it reads them
 * and waits for another event. This makes one; what is not read stays readable. */
void http_connections_repeat_ends(struct http_worker *w)
{
    while (w->half_closed) {
        struct http_connection *c = w->half_closed;
        w->half_closed = c->next_half_closed;
        shutdown(c->fd, SHUT_RD);
    }
}
