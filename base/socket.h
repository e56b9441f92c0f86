/* TCP connections between processes that trust each other. Sockets do not block: every wait has an end, a time of
 * clock_seconds(). What is sent is in the order and the representation of the machine. */
#ifndef QUIRE_BASE_SOCKET_H
#define QUIRE_BASE_SOCKET_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* An address and a port, as people write them. */
struct socket_name {
    char address[64]; /* "10.0.0.1", "::1" */
    int port;
};

/* Listens on an address of this machine; port 0: one that is free. IO: the system refuses; the sentence says why. */
enum status socket_listen(const char *address, int port, int *out, struct error *err);
/* The next connection. CANCELLED: nobody came until `end`, and *out is -1. */
enum status socket_accept(int listener, double end, int *out, struct error *err);
/* Tries until `end`, because the other process may not listen yet. */
enum status socket_connect(const char *address, int port, double end, int *out, struct error *err);
void socket_close(int *fd); /* and sets it to -1; nothing is done if it is */

bool socket_own_name(int fd, struct socket_name *out);
bool socket_peer_name(int fd, struct socket_name *out);

enum socket_result {
    SOCKET_OK,
    SOCKET_ENDED,   /* the other process has closed the connection, or ended */
    SOCKET_TOO_LATE /* nothing was sent or received until `end` */
};
/* All of it, or not OK. */
enum socket_result socket_send(int fd, const void *bytes, size_t count, double end);
enum socket_result socket_receive(int fd, void *bytes, size_t count, double end);

/* What one connection is to send and to receive. */
struct socket_exchange {
    int fd; /* -1: none */
    const char *send;
    char *receive;
    size_t to_send, to_receive;
    enum socket_result result;
};
/* Sends and receives on all of them at once, and waits for at most `seconds` at a time in which nothing comes or goes.
 * Returns whether all are OK; the first that is not says why. */
bool socket_exchange_all(struct socket_exchange *exchanges, int count, double seconds);

#endif
