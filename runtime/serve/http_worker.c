/* A worker of the HTTP server: what it waits for and does, and how connections come to it. */
#include <errno.h>
#include <limits.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/clock.h"
#include "runtime/serve/http_state.h"

static const double SECONDS_TO_END = 2;       /* that whole answers have to be sent when the server stops */
static const double SECONDS_TO_ACCEPT = 0.1;  /* until a connection is accepted again that the system has refused */
static const double SECONDS_TO_WARN = 60;     /* until that is said again */
enum { MAX_EVENTS = 128, MAX_ACCEPTED = 64 }; /* in one turn */

/* ---- accepting ---- */

/* A client that has vanished without a word is asked after some seconds of silence. */
static void set_options(int fd)
{
    const int on = 1, idle = 30, interval = 10, probes = 4;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

static void add_connection(struct http_worker *w, const struct http_new_connection *n)
{
    w->was_told = false;
    if (!w->daemon) { /* the server has stopped meanwhile */
        close(n->fd);
        http_worker_count_connection(w, -1);
        return;
    }
    if (n->address.ss_family != AF_UNIX) set_options(n->fd);
    if (MHD_add_connection(w->daemon, n->fd, (const struct sockaddr *)&n->address, n->address_length) == MHD_NO &&
        !w->was_told)
        http_worker_count_connection(w, -1);
}

static void give_connection(struct http_server *s, const struct http_new_connection *n)
{
    struct http_worker *w = &s->workers[0];
    for (int i = 1; i < s->num_workers; i++)
        if (atomic_load(&s->workers[i].connections) < atomic_load(&w->connections)) w = &s->workers[i];
    http_worker_count_connection(w, 1);
    if (w == &s->workers[0]) {
        add_connection(w, n);
        return;
    }
    struct http_new_connection *copy = malloc(sizeof *copy);
    if (!copy) {
        close(n->fd);
        http_worker_count_connection(w, -1);
        return;
    }
    *copy = *n;
    pthread_mutex_lock(&w->lock);
    copy->next = w->added;
    w->added = copy;
    pthread_mutex_unlock(&w->lock);
    http_worker_wake(w, false);
}

static bool is_refused_by_system(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

static void refuse_for_now(struct http_server *s, int error)
{
    const double now = clock_seconds();
    if (now >= s->warn_again) {
        log_write(s->options.log, LOG_WARNING, "cannot accept a connection: %s", strerror(error));
        s->warn_again = now + SECONDS_TO_WARN;
    }
    s->accept_again = now + SECONDS_TO_ACCEPT;
}

static void accept_some(struct http_server *s, int listener)
{
    for (int i = 0; i < MAX_ACCEPTED && !http_server_is_full(s); i++) {
        struct http_new_connection n = {.address_length = sizeof n.address};
        n.fd = accept4(listener, (struct sockaddr *)&n.address, &n.address_length, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (n.fd >= 0) {
            give_connection(s, &n);
        } else if (errno == EAGAIN) {
            return;
        } else if (is_refused_by_system(errno)) {
            refuse_for_now(s, errno);
            return;
        }
    }
}

/* The first worker watches the listener while there may be more connections. */
static void watch_listener(struct http_worker *w, double now)
{
    struct http_server *s = w->server;
    const bool accepts = !atomic_load(&s->closing) && now >= s->accept_again && !http_server_is_full(s);
    if (accepts != s->accepting)
        for (int i = 0; i < s->listener.count; i++) {
            struct epoll_event event = {.events = EPOLLIN, .data.ptr = &s->listener.fds[i]};
            epoll_ctl(w->epoll, accepts ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, s->listener.fds[i], &event);
        }
    s->accepting = accepts;
    if (atomic_load(&s->closing)) http_listener_close(&s->listener);
}

/* ---- the inbox ---- */

void http_worker_wake(struct http_worker *w, bool always)
{
    pthread_mutex_lock(&w->lock);
    const bool wakes =
        !w->signalled && (always || w->changed || w->added) && (always || atomic_load(&w->server->holding) == 0);
    if (wakes) w->signalled = true;
    pthread_mutex_unlock(&w->lock);
    if (wakes) eventfd_write(w->wake, 1);
}

void http_worker_tell(struct http_worker *w, struct http_exchange *x)
{
    x->queued = true;
    atomic_fetch_add(&x->references, 1);
    pthread_mutex_lock(&w->lock);
    x->next_changed = w->changed;
    w->changed = x;
    pthread_mutex_unlock(&w->lock);
    http_worker_wake(w, false);
}

static void look_at_exchange(struct http_exchange *x)
{
    pthread_mutex_lock(&x->lock);
    x->queued = false;
    if (x->connection && x->too_slow) shutdown(x->connection->fd, SHUT_RDWR);
    if (x->connection) http_exchange_resume(x);
    pthread_mutex_unlock(&x->lock);
    http_exchange_release(x);
}

static void empty_inbox(struct http_worker *w)
{
    pthread_mutex_lock(&w->lock);
    struct http_exchange *changed = w->changed;
    struct http_new_connection *added = w->added;
    w->changed = NULL;
    w->added = NULL;
    w->signalled = false;
    pthread_mutex_unlock(&w->lock);
    while (changed) {
        struct http_exchange *x = changed;
        changed = x->next_changed;
        look_at_exchange(x);
    }
    while (added) {
        struct http_new_connection *n = added;
        added = n->next;
        add_connection(w, n);
        free(n);
    }
}

/* ---- the thread ---- */

static int wait_for_events(struct http_worker *w, double end, struct epoll_event *events)
{
    MHD_UNSIGNED_LONG_LONG milliseconds;
    double seconds = end - clock_seconds();
    if (MHD_get_timeout(w->daemon, &milliseconds) == MHD_YES && (double)milliseconds / 1000 < seconds)
        seconds = (double)milliseconds / 1000;
    const int timeout = seconds > INT_MAX / 1000 ? -1 : seconds <= 0 ? 0 : (int)(seconds * 1000) + 1;
    return epoll_wait(w->epoll, events, MAX_EVENTS, timeout);
}

static bool is_listener(const struct http_server *s, const void *what)
{
    for (int i = 0; i < HTTP_MAX_SOCKETS; i++)
        if (what == &s->listener.fds[i]) return true;
    return false;
}

/* What happened outside of libmicrohttpd. No connection ends here, so each that an event names is still there. */
static void look_at_events(struct http_worker *w, const struct epoll_event *events, int count)
{
    eventfd_t number;
    for (int i = 0; i < count; i++) {
        void *what = events[i].data.ptr;
        if (what == w)
            eventfd_read(w->wake, &number);
        else if (is_listener(w->server, what))
            accept_some(w->server, *(int *)what);
        else if (what != w->daemon)
            http_connection_half_closed(what);
    }
}

static void turn(struct http_worker *w, double end)
{
    struct http_server *s = w->server;
    struct epoll_event events[MAX_EVENTS];
    const double now = clock_seconds(), next = http_connections_close_idle(w, now);
    if (next < end) end = next;
    if (w == &s->workers[0]) {
        watch_listener(w, now);
        if (now < s->accept_again && s->accept_again < end) end = s->accept_again;
    }
    const int count = wait_for_events(w, end, events);
    look_at_events(w, events, count);
    empty_inbox(w);
    MHD_run(w->daemon);
    http_connections_repeat_ends(w);
}

static void lose_exchanges_of(struct http_connection_list *l)
{
    for (struct http_connection *c = l->first; c; c = c->next) {
        struct http_exchange *x = c->exchange;
        if (!x) continue;
        pthread_mutex_lock(&x->lock);
        if (!x->ended && x->answer != ANSWER_WHOLE) {
            http_exchange_lose(x);
            shutdown(c->fd, SHUT_RDWR);
        }
        http_exchange_resume(x);
        pthread_mutex_unlock(&x->lock);
    }
}

/* Nobody will get an answer that is not whole by now. */
static void lose_exchanges(struct http_worker *w)
{
    lose_exchanges_of(&w->reading);
    lose_exchanges_of(&w->busy);
}

void *http_worker_run(void *worker)
{
    struct http_worker *w = worker;
    struct http_server *s = w->server;
    pthread_setname_np(pthread_self(), "http");
    while (!atomic_load(&s->stopping)) turn(w, HTTP_NEVER);
    lose_exchanges(w);
    const double end = clock_seconds() + SECONDS_TO_END;
    while (w->num_exchanges > 0 && clock_seconds() < end) turn(w, end);
    lose_exchanges(w);
    MHD_run(w->daemon);
    MHD_stop_daemon(w->daemon);
    w->daemon = NULL;
    return NULL;
}

/* ---- opening and closing ---- */

static void write_log(void *worker, const char *format, va_list args)
{
    struct http_worker *w = worker;
    char line[512];
    vsnprintf(line, sizeof line, format, args);
    line[strcspn(line, "\n")] = 0;
    log_write(w->server->options.log, LOG_DEBUG, "HTTP: %s", line);
}

static bool start_daemon(struct http_worker *w, const char *certificate, const char *key)
{
    enum { SLACK = 8192 }; /* of what libmicrohttpd keeps of a connection: lists of headers, the answer's head */
    const struct http_options *o = &w->server->options;
    const unsigned int flags = MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG;
    const struct MHD_OptionItem tls[] = {{MHD_OPTION_HTTPS_MEM_CERT, 0, (void *)certificate},
                                         {MHD_OPTION_HTTPS_MEM_KEY, 0, (void *)key},
                                         {MHD_OPTION_END, 0, NULL}};
    const struct MHD_OptionItem none[] = {{MHD_OPTION_END, 0, NULL}};
    w->daemon =
        MHD_start_daemon(flags | (certificate ? MHD_USE_TLS : 0), 0, NULL, NULL, http_request_continue, w,
                         MHD_OPTION_EXTERNAL_LOGGER, write_log, w, MHD_OPTION_NOTIFY_COMPLETED, http_request_completed,
                         w, MHD_OPTION_NOTIFY_CONNECTION, http_connection_notice, w, MHD_OPTION_CONNECTION_LIMIT,
                         (unsigned int)o->max_connections + 1, MHD_OPTION_CONNECTION_TIMEOUT,
                         (unsigned int)o->idle_seconds, MHD_OPTION_CONNECTION_MEMORY_LIMIT, o->max_head + SLACK,
                         MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_ARRAY, certificate ? tls : none, MHD_OPTION_END);
    return w->daemon != NULL;
}

static bool watch(struct http_worker *w, int fd, void *what)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = what};
    return epoll_ctl(w->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

enum status http_worker_open(struct http_worker *w, const char *certificate, const char *key, struct error *err)
{
    uint64_t seed;
    if (getrandom(&seed, sizeof seed, 0) == sizeof seed) w->ids.state = seed;
    pthread_mutex_init(&w->lock, NULL);
    w->epoll = epoll_create1(EPOLL_CLOEXEC);
    w->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (w->epoll < 0 || w->wake < 0 || !watch(w, w->wake, w))
        return error_set(err, STATUS_IO, "cannot wait for connections: %s", strerror(errno));
    if (!start_daemon(w, certificate, key))
        return certificate ? error_set(err, STATUS_INVALID, "not a certificate and its private key in PEM form")
                           : error_set(err, STATUS_OUT_OF_MEMORY, "libmicrohttpd cannot start");
    if (!watch(w, MHD_get_daemon_info(w->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd, w->daemon))
        return error_set(err, STATUS_IO, "cannot wait for connections: %s", strerror(errno));
    return STATUS_OK;
}

void http_worker_close(struct http_worker *w)
{
    if (!w->server) return;
    empty_inbox(w);
    if (w->daemon) MHD_stop_daemon(w->daemon);
    if (w->epoll >= 0) close(w->epoll);
    if (w->wake >= 0) close(w->wake);
    pthread_mutex_destroy(&w->lock);
}
