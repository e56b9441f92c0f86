/* A client of HTTP/1.1 that writes what it is told, byte by byte if need be. Where the system refuses, or nothing comes
 * for a minute, the test fails. */
#ifndef QUIRE_TESTS_SUPPORT_HTTP_CLIENT_H
#define QUIRE_TESTS_SUPPORT_HTTP_CLIENT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/array.h"

struct http_client {
    int fd;
    struct text in; /* what came and is not read */
};

struct http_reply {
    int status; /* 0: the connection ended before the head was whole */
    bool whole; /* the body, too */
    struct text head, body;
};

/* To the URL of a server: "http://127.0.0.1:8000", "http://[::1]:8000", "unix:/PATH". */
void http_client_open(struct http_client *c, const char *url);
void http_client_close(struct http_client *c);
/* Whether a connection to the URL is refused. */
bool http_client_is_refused(const char *url);

void http_client_write(struct http_client *c, const char *bytes,
                       size_t count); /* the server may have closed: no error */
/* "METHOD PATH HTTP/1.1", Host, `headers` ("Name: value\r\n..."; may be ""), and the body with its length unless it is
 * NULL. */
void http_client_send(struct http_client *c, const char *method, const char *path, const char *headers,
                      const char *body);

/* The next reply; that to a HEAD request has no body. */
void http_client_read(struct http_client *c, bool is_head, struct http_reply *out);
void http_reply_free(struct http_reply *r);
/* Writes the value of a header of the reply to out[size]; false if there is none. */
bool http_reply_header(const struct http_reply *r, const char *name, char *out, size_t size);
/* Reads until at least `count` bytes have come that are not read yet; false: the connection ended before. */
bool http_client_fill(struct http_client *c, size_t count);

/* All of it: one request and its reply. */
void http_client_ask(struct http_client *c, const char *method, const char *path, const char *headers, const char *body,
                     struct http_reply *out);

#endif
