/* What the HTTP server is made of.
 *
 * Each worker is a thread with a daemon of libmicrohttpd that has no threads of its own. The worker waits for the
 * daemon's descriptor, for its own wake-up and for clients that go away, all with one epoll, and then runs the daemon.
 * So everything that concerns a connection happens on one thread, and only what others say about an exchange (its
 * answer) needs a lock. A connection whose answer has nothing to send is suspended: libmicrohttpd does not look at it.
 *
 * The first worker accepts connections and gives each to the worker that has the fewest. */
#ifndef QUIRE_RUNTIME_SERVE_HTTP_STATE_H
#define QUIRE_RUNTIME_SERVE_HTTP_STATE_H

#include <microhttpd.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "base/array.h"
#include "base/random.h"
#include "runtime/serve/http.h"
#include "runtime/serve/http_listener.h"

struct http_connection { /* lives as long as the daemon has the connection */
    struct http_connection *previous, *next;
    struct http_connection_list *list; /* the one that it is in */
    struct http_worker *worker;
    struct MHD_Connection *handle;
    struct http_exchange *exchange; /* NULL: the head of the next request is awaited */
    double since;                   /* when that wait began, or that for the rest of a request */
    bool half_closed;               /* the client sends nothing more */
    struct http_connection *next_half_closed;
    int fd;
    char peer[INET6_ADDRSTRLEN];
};

struct http_connection_list {
    struct http_connection *first, *last;
};

struct http_new_connection { /* on its way from the first worker to another */
    struct http_new_connection *next;
    struct sockaddr_storage address;
    socklen_t address_length;
    int fd;
};

struct http_worker {
    struct http_server *server;
    struct MHD_Daemon *daemon;
    pthread_t thread;
    int epoll, wake;
    struct http_connection_list waiting; /* for the head of a request; the longest first */
    struct http_connection_list reading; /* the body of a request; the longest first */
    struct http_connection_list busy;    /* with a request that is whole, or about to be closed */
    struct http_connection *half_closed; /* in this turn */
    int num_exchanges;
    bool was_told;          /* libmicrohttpd has announced the connection that was added last */
    struct random ids;      /* of requests */
    atomic_int connections; /* that it has or will get */

    pthread_mutex_t lock; /* of what follows: the inbox */
    struct http_exchange *changed;
    struct http_new_connection *added;
    bool signalled; /* the worker will look into its inbox */
};

struct http_server {
    struct http_options options; /* `host`, `certificate` and `key` are not kept */
    char *allowed_origins;
    struct http_listener listener; /* of the first worker once it runs */
    bool accepting;                /* the first worker's epoll has the listener */
    double accept_again;           /* time before which the system would refuse another connection */
    double warn_again;             /* time before which nothing is said about that */
    atomic_int num_connections;
    atomic_int holding; /* http_send_several_begin without its end */
    atomic_bool closing, stopping;
    int num_workers;
    struct http_worker workers[];
};

enum http_answer_kind { ANSWER_NONE, ANSWER_WHOLE, ANSWER_STREAM };

struct http_field {
    enum MHD_ValueKind kind;
    const char *name, *value;
};

struct http_exchange {
    /* The request, which does not change after `handle` has been called. */
    struct http_server *server;
    pthread_t thread; /* the worker's */
    const char *method, *path;
    char *strings; /* what they, `fields` and `peer` point to */
    const char *peer;
    struct http_field *fields; /* [num_fields] headers and the query's parameters */
    size_t num_fields;
    struct text body;
    size_t dropped; /* bytes of a body that nobody will read */
    char id[129];
    bool head_only; /* HEAD: the answer's body is not sent */

    atomic_int references; /* the connection's, the user's, and the inbox's */
    void *data;

    pthread_mutex_t lock;               /* of what follows */
    pthread_cond_t told;                /* `telling` has become false */
    struct http_connection *connection; /* NULL: it is done with the exchange */
    struct http_exchange *next_changed; /* in the inbox; that one's lock */
    enum http_answer_kind answer;
    int status;
    struct text headers; /* "name\0value\0..." */
    struct text out;     /* the whole body; of a stream, what is not sent */
    size_t sent;         /* bytes of a stream's `out` */
    bool handed;         /* to `handle` */
    bool ended;          /* the user will say nothing more */
    bool gone;           /* nothing more can be sent */
    bool telling;        /* `gone` of the options is running */
    bool suspended;      /* the connection */
    bool queued;         /* in the inbox */
    bool too_slow;       /* the connection is to be closed */
};

/* ---- http_worker.c ---- */

enum status http_worker_open(struct http_worker *w, const char *certificate, const char *key, struct error *err);
void http_worker_close(struct http_worker *w); /* safe on a zeroed one; its thread does not run */
void *http_worker_run(void *worker);
/* always false: if there is something in its inbox, and no sends of several exchanges go on. */
void http_worker_wake(struct http_worker *w, bool always);
/* Puts the exchange into the inbox. */
void http_worker_tell(struct http_worker *w, struct http_exchange *x);

/* ---- http_connection.c ---- */

#define HTTP_NEVER 1e18 /* seconds */

bool http_server_is_full(struct http_server *s);
void http_worker_count_connection(struct http_worker *w, int change);
/* What libmicrohttpd calls when a connection begins and ends. */
void http_connection_notice(void *worker, struct MHD_Connection *handle, void **context,
                            enum MHD_ConnectionNotificationCode code);
/* The connection has the head of a request, or waits for the next. */
void http_connection_set_exchange(struct http_connection *c, struct http_exchange *x);
void http_connection_set_whole(struct http_connection *c); /* the request */
/* The client sends nothing more. If it awaits an answer, it is taken to be gone: what TCP tells of both is the same. */
void http_connection_half_closed(struct http_connection *c);
/* To be called after libmicrohttpd has looked at the connections that are half closed. */
void http_connections_repeat_ends(struct http_worker *w);
/* Closes connections whose requests take too long. Returns when the next will have. */
double http_connections_close_idle(struct http_worker *w, double now);

/* ---- http_request.c: what libmicrohttpd calls ---- */

enum MHD_Result http_request_continue(void *worker, struct MHD_Connection *handle, const char *url, const char *method,
                                      const char *version, const char *bytes, size_t *count, void **exchange);
void http_request_completed(void *worker, struct MHD_Connection *handle, void **exchange,
                            enum MHD_RequestTerminationCode code);

/* ---- http_exchange.c ---- */

/* NULL: there is no memory. It has one reference, the connection's. */
struct http_exchange *http_exchange_new(struct http_connection *c, const char *url, const char *method);
void http_exchange_release(struct http_exchange *x);
/* Both on the worker's thread, with x->lock: nobody reads the answer any more, which the user is told; the connection
 * is looked at again. */
void http_exchange_lose(struct http_exchange *x);
void http_exchange_resume(struct http_exchange *x);
/* An answer of the server itself. */
void http_exchange_refuse(struct http_exchange *x, int status, const char *sentence);

#endif
