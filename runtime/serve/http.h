/* An HTTP/1.1 server (libmicrohttpd), which knows nothing of models: it reads whole requests, hands them to a function,
 * and sends answers, at once or as they come. It keeps to its limits: of connections, of a request's head, body and
 * time, of what waits for a slow reader.
 *
 * Threads. The server has threads of its own (options.num_threads), which call the functions of struct http_options.
 * All functions on an exchange may be called from any thread, one at a time for one exchange. An exchange lives until
 * http_end has been called for it, and its memory goes when also the connection is done with it. */
#ifndef QUIRE_RUNTIME_SERVE_HTTP_H
#define QUIRE_RUNTIME_SERVE_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/array.h"
#include "base/log.h"
#include "base/status.h"

struct http_server;
struct http_exchange; /* a request and its answer */

struct http_options {
    const char *host;        /* an address or a name: "127.0.0.1", "::1", "0.0.0.0", "::"; or "unix:/PATH" */
    int port;                /* 0: one that is free */
    int socket_mode;         /* of the file of a Unix socket; 0: 0600 */
    bool inherited;          /* listen on the sockets that systemd has opened (LISTEN_FDS, LISTEN_PID), not on `host` */
    const char *certificate; /* PEM files, for TLS; NULL: none */
    const char *key;
    int num_threads;           /* 1 or more */
    int max_connections;       /* more wait in the kernel's queue */
    size_t max_body, max_head; /* bytes; 413 and 431 */
    int idle_seconds;          /* within it a connection must bring the head of its next request, bytes of a body that
                                  it began, and must take bytes of an answer; else it is closed */
    size_t max_unsent; /* if more bytes than these wait for a reader, http_send says so and the exchange is gone */
    const char *allowed_origins; /* CORS: "*", or origins with commas between them; NULL: none */
    const struct log *log;

    /* The head of a request is there, and its body is still to be read. http_answer and http_end refuse it: then what
     * comes of the body is dropped, and `handle` is not called. NULL: every request is read. */
    void (*head)(void *user, struct http_exchange *x);
    /* The whole request is there. It may answer now or later, from any thread. */
    void (*handle)(void *user, struct http_exchange *x);
    /* The client has gone before the answer was sent: nobody will read it. Called once at most, on a thread of the
     * server, never after http_end has returned, with `data` of the exchange. http_end waits for it, so it must not
     * wait itself. A client that closes only its sending side counts as gone while its answer is awaited. */
    void (*gone)(void *user, struct http_exchange *x, void *data);
    /* Writes the body of an answer that the server gives by itself (403, 413, 431, 500, 503), of type `error_type`.
     * NULL: the sentence as plain text. */
    void (*error_body)(void *user, int status, const char *sentence, struct text *out);
    const char *error_type;
    void *user;
};

/* Listens and serves. IO: the address cannot be used; the sentence says which and why. */
enum status http_server_start(const struct http_options *options, struct http_server **out, struct error *err);
/* "http://127.0.0.1:8000", "unix:/run/quire.sock" */
const char *http_server_url(const struct http_server *s);
/* Takes no more connections, and no more requests on those that there are, which end when they are answered. */
void http_server_close_listener(struct http_server *s);
/* Ends all connections; exchanges that are open are gone, answers that are whole get two seconds to be sent. After it
 * no function of `options` is called; http_end may be. Not to be called by a function of `options`. NULL is allowed. */
void http_server_stop(struct http_server *s);
int http_server_num_connections(const struct http_server *s);

/* ---- a request; strings live as long as the exchange ---- */

const char *http_method(const struct http_exchange *x); /* "POST"; HEAD comes as GET, OPTIONS of CORS never */
const char *http_path(const struct http_exchange *x);   /* "/v1/models", decoded, without its query */
const char *http_query(const struct http_exchange *x, const char *name);  /* NULL: there is none */
const char *http_header(const struct http_exchange *x, const char *name); /* in any case; NULL: there is none */
const char *http_body(const struct http_exchange *x, size_t *length);     /* NUL-terminated */
const char *http_peer(const struct http_exchange *x);                     /* "10.0.0.1", "unix" */
/* The request's X-Request-Id if it has one of up to 128 printable characters, else one that was made for it; the answer
 * has it, too. */
const char *http_request_id(const struct http_exchange *x);
/* For `gone`; to be set in `handle`. */
void http_set_data(struct http_exchange *x, void *data);

/* ---- its answer ---- */

/* A header of the answer; before it begins. */
void http_add_header(struct http_exchange *x, const char *name, const char *value);
/* The whole answer, body[length], which is copied. type NULL: it has no body. */
void http_answer(struct http_exchange *x, int status, const char *type, const char *body, size_t length);
/* Begins an answer whose length is not known (chunked). */
void http_begin(struct http_exchange *x, int status, const char *type);
/* Adds to it; sent when the reader takes it. False: the client has gone, or reads too slowly. Never waits. */
bool http_send(struct http_exchange *x, const char *bytes, size_t length);
/* Sends of several exchanges between these two wake the server's threads once, at the end. */
void http_send_several_begin(struct http_server *s);
void http_send_several_end(struct http_server *s);
/* The last call for each exchange: the answer is whole (or was never begun: 500). */
void http_end(struct http_exchange *x);

#endif
