#include "base/socket.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

/* ---- connections ---- */

/* A host that has vanished sends nothing, not even that it is gone: it is asked after some seconds of silence, and
 * given up when it does not answer. */
static void set_options(int fd)
{
    const int on = 1, idle = 15, interval = 5, probes = 4, unanswered_ms = 35000;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered_ms, sizeof unanswered_ms);
}

static enum status resolve(const char *address, int port, bool to_listen, struct addrinfo **out, struct error *err)
{
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = to_listen ? AI_PASSIVE : 0};
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    const int error = getaddrinfo(address, service, &hints, out);
    if (error == 0) return STATUS_OK;
    *out = NULL;
    return error_set(err, STATUS_IO, "'%s' is no address that can be reached: %s", address,
                     error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error));
}

static int new_socket(const struct addrinfo *a)
{
    return socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, a->ai_protocol);
}

enum status socket_listen(const char *address, int port, int *out, struct error *err)
{
    struct addrinfo *found;
    const int on = 1;
    *out = -1;
    const enum status status = resolve(address, port, true, &found, err);
    if (status != STATUS_OK) return status;
    int error = 0;
    for (const struct addrinfo *a = found; a && *out < 0; a = a->ai_next) {
        const int fd = new_socket(a);
        if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
            bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0) {
            *out = fd;
            break;
        }
        error = errno;
        if (fd >= 0) close(fd);
    }
    freeaddrinfo(found);
    if (*out >= 0) return STATUS_OK;
    return error_set(err, STATUS_IO, "cannot listen on port %d of %s: %s", port, address, strerror(error));
}

/* Whether the descriptor is ready before `end`. */
static bool wait_for(int fd, short events, double end)
{
    for (;;) {
        struct pollfd p = {.fd = fd, .events = events};
        const double left = end - clock_seconds();
        const int n = poll(&p, 1, left <= 0 ? 0 : left < 1000 ? (int)(left * 1000) + 1 : 1000000);
        if (n > 0) return true;
        if (n == 0 && clock_seconds() >= end) return false;
    }
}

enum status socket_accept(int listener, double end, int *out, struct error *err)
{
    for (;;) {
        *out = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (*out >= 0) break;
        /* A connection that ended before it was accepted is none. */
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
            return error_set(err, STATUS_IO, "cannot accept a connection: %s", strerror(errno));
        if (!wait_for(listener, POLLIN, end)) return error_set(err, STATUS_CANCELLED, "nobody connected");
    }
    set_options(*out);
    return STATUS_OK;
}

/* 0, or why it cannot be reached. */
static int connect_once(const struct addrinfo *a, double end, int *out)
{
    int error = 0;
    socklen_t size = sizeof error;
    const int fd = new_socket(a);
    if (fd < 0) return errno;
    if (connect(fd, a->ai_addr, a->ai_addrlen) != 0) {
        if (errno != EINPROGRESS)
            error = errno;
        else if (!wait_for(fd, POLLOUT, end))
            error = ETIMEDOUT;
        else
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error != 0) {
        close(fd);
        return error;
    }
    set_options(fd);
    *out = fd;
    return 0;
}

enum status socket_connect(const char *address, int port, double end, int *out, struct error *err)
{
    enum { PAUSE = 50000 /* microseconds */ };
    struct addrinfo *found;
    *out = -1;
    const enum status status = resolve(address, port, false, &found, err);
    if (status != STATUS_OK) return status;
    int error = 0;
    while (*out < 0) {
        for (const struct addrinfo *a = found; a && *out < 0; a = a->ai_next) error = connect_once(a, end, out);
        if (*out >= 0 || clock_seconds() >= end) break;
        usleep(PAUSE);
    }
    freeaddrinfo(found);
    if (*out >= 0) return STATUS_OK;
    return error_set(err, STATUS_IO, "cannot connect to port %d of %s: %s", port, address, strerror(error));
}

void socket_close(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

static bool name_of(const struct sockaddr_storage *address, socklen_t size, struct socket_name *out)
{
    char service[16];
    if (getnameinfo((const struct sockaddr *)address, size, out->address, sizeof out->address, service, sizeof service,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return false;
    return sscanf(service, "%d", &out->port) == 1;
}

bool socket_own_name(int fd, struct socket_name *out)
{
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    return getsockname(fd, (struct sockaddr *)&address, &size) == 0 && name_of(&address, size, out);
}

bool socket_peer_name(int fd, struct socket_name *out)
{
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    return getpeername(fd, (struct sockaddr *)&address, &size) == 0 && name_of(&address, size, out);
}

/* ---- bytes ---- */

/* Sends and receives what is possible now. */
static void move_bytes(struct socket_exchange *x, bool *moved)
{
    while (x->to_send > 0 && x->result == SOCKET_OK) {
        const ssize_t n = send(x->fd, x->send, x->to_send, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) break;
        if (n < 0) {
            x->result = SOCKET_ENDED;
            break;
        }
        x->send += n, x->to_send -= (size_t)n;
        *moved = true;
    }
    while (x->to_receive > 0) {
        const ssize_t n = recv(x->fd, x->receive, x->to_receive, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) break;
        if (n <= 0) {
            x->result = SOCKET_ENDED;
            break;
        }
        x->receive += n, x->to_receive -= (size_t)n;
        *moved = true;
    }
}

enum { MAX_EXCHANGES = 64 };

/* What is still to be waited for. -1: a connection has ended. */
static int list_waits(const struct socket_exchange *exchanges, int count, struct pollfd *polled)
{
    int open = 0;
    for (int i = 0; i < count; i++) {
        const struct socket_exchange *x = &exchanges[i];
        if (x->result != SOCKET_OK) return -1;
        const short events = (short)((x->to_send > 0 ? POLLOUT : 0) | (x->to_receive > 0 ? POLLIN : 0));
        if (x->fd >= 0 && events) polled[open++] = (struct pollfd){.fd = x->fd, .events = events};
    }
    return open;
}

static void end_late(struct socket_exchange *exchanges, int count)
{
    for (int i = 0; i < count; i++)
        if (exchanges[i].fd >= 0 && exchanges[i].to_send + exchanges[i].to_receive > 0)
            exchanges[i].result = SOCKET_TOO_LATE;
}

/* Looks for some tens of microseconds before it sleeps: what is awaited is mostly about to come. */
bool socket_exchange_all(struct socket_exchange *exchanges, int count, double seconds)
{
    static const double LOOK_SECONDS = 30e-6;
    struct pollfd polled[MAX_EXCHANGES];
    double last = clock_seconds();
    for (int i = 0; i < count; i++) exchanges[i].result = SOCKET_OK;
    for (;;) {
        bool moved = false;
        for (int i = 0; i < count; i++)
            if (exchanges[i].fd >= 0) move_bytes(&exchanges[i], &moved);
        const int open = list_waits(exchanges, count, polled);
        if (open <= 0) return open == 0;
        const double now = clock_seconds();
        if (moved) last = now;
        if (now - last < LOOK_SECONDS) continue;
        const double left = last + seconds - now;
        if (left <= 0) {
            end_late(exchanges, count);
            return false;
        }
        poll(polled, (nfds_t)open, left < 1000 ? (int)(left * 1000) + 1 : 1000000);
    }
}

static enum socket_result exchange_one(struct socket_exchange x, double end)
{
    const double left = end - clock_seconds();
    socket_exchange_all(&x, 1, left > 0 ? left : 0);
    return x.result;
}

enum socket_result socket_send(int fd, const void *bytes, size_t count, double end)
{
    return exchange_one((struct socket_exchange){.fd = fd, .send = bytes, .to_send = count}, end);
}

enum socket_result socket_receive(int fd, void *bytes, size_t count, double end)
{
    return exchange_one((struct socket_exchange){.fd = fd, .receive = bytes, .to_receive = count}, end);
}
