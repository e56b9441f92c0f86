/* The sockets that an HTTP server listens on. */
#ifndef QUIRE_RUNTIME_SERVE_HTTP_LISTENER_H
#define QUIRE_RUNTIME_SERVE_HTTP_LISTENER_H

#include <sys/stat.h>
#include <sys/types.h>

#include "base/status.h"

struct http_options;

enum { HTTP_MAX_SOCKETS = 16 };

struct http_listener {
    int fds[HTTP_MAX_SOCKETS], count;
    char url[384];
    char path[128]; /* of the Unix socket that it has made; "": none */
    dev_t device;   /* and which file that is */
    ino_t inode;
};

/* Opens what the options ask for: all addresses of a name, a Unix socket, or what systemd has opened. A file that no
 * server listens on is replaced. */
enum status http_listener_open(const struct http_options *options, struct http_listener *out, struct error *err);
/* Closes them, and removes the file of its Unix socket. */
void http_listener_close(struct http_listener *l);

#endif
