#include "tests/support/http_client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

static void refuse(const char *what)
{
    fprintf(stderr, "HTTP client: %s: %s\n", what, strerror(errno));
    abort();
}

/* ---- connections ---- */

static int connect_unix(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    if (fd < 0) refuse("socket");
    if (connect(fd, (struct sockaddr *)&a, sizeof a) == 0) return fd;
    close(fd);
    return -1;
}

static int connect_tcp(const char *url)
{
    char host[128] = "", port[16] = "";
    struct addrinfo *a, hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
    if (sscanf(url, "http://[%127[^]]]:%15s", host, port) != 2 && sscanf(url, "http://%127[^:]:%15s", host, port) != 2)
        refuse(url);
    if (getaddrinfo(host, port, &hints, &a) != 0) refuse(url);
    const int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) refuse("socket");
    const bool connected = connect(fd, a->ai_addr, a->ai_addrlen) == 0;
    freeaddrinfo(a);
    if (connected) return fd;
    close(fd);
    return -1;
}

static int connect_url(const char *url)
{
    return strncmp(url, "unix:", 5) == 0 ? connect_unix(url + 5) : connect_tcp(url);
}

void http_client_open(struct http_client *c, const char *url)
{
    const struct timeval minute = {.tv_sec = 60};
    *c = (struct http_client){.fd = connect_url(url)};
    if (c->fd < 0) refuse(url);
    setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &minute, sizeof minute);
    setsockopt(c->fd, SOL_SOCKET, SO_SNDTIMEO, &minute, sizeof minute);
}

void http_client_close(struct http_client *c)
{
    if (c->fd >= 0) close(c->fd);
    c->fd = -1;
    text_free(&c->in);
}

bool http_client_is_refused(const char *url)
{
    const int fd = connect_url(url);
    if (fd >= 0) close(fd);
    return fd < 0;
}

/* ---- requests ---- */

void http_client_write(struct http_client *c, const char *bytes, size_t count)
{
    while (count > 0) {
        const ssize_t n = send(c->fd, bytes, count, MSG_NOSIGNAL);
        if (n < 0 && (errno == EPIPE || errno == ECONNRESET)) return;
        if (n < 0) refuse("send");
        bytes += n;
        count -= (size_t)n;
    }
}

void http_client_send(struct http_client *c, const char *method, const char *path, const char *headers,
                      const char *body)
{
    struct text t = {0};
    text_printf(&t, "%s %s HTTP/1.1\r\nHost: localhost\r\n%s", method, path, headers);
    if (body) text_printf(&t, "Content-Length: %zu\r\n", strlen(body));
    text_append_string(&t, "\r\n");
    if (body) text_append_string(&t, body);
    http_client_write(c, t.data, t.length);
    text_free(&t);
}

/* ---- replies ---- */

static bool receive(struct http_client *c)
{
    char bytes[16384];
    const ssize_t n = recv(c->fd, bytes, sizeof bytes, 0);
    if (n < 0 && errno == EAGAIN) refuse("nothing came for a minute");
    if (n <= 0) return false;
    return text_append(&c->in, bytes, (size_t)n);
}

bool http_client_fill(struct http_client *c, size_t count)
{
    while (c->in.length < count)
        if (!receive(c)) return false;
    return true;
}

static void take(struct http_client *c, size_t count, struct text *out)
{
    if (out) text_append(out, c->in.data, count);
    memmove(c->in.data, c->in.data + count, c->in.length - count);
    c->in.length -= count;
    c->in.data[c->in.length] = 0;
}

/* Takes what ends with `end`. */
static bool take_to(struct http_client *c, const char *end, struct text *out)
{
    const char *found;
    while (c->in.length == 0 || !(found = memmem(c->in.data, c->in.length, end, strlen(end))))
        if (!receive(c)) return false;
    take(c, (size_t)(found - c->in.data) + strlen(end), out);
    return true;
}

static bool take_chunks(struct http_client *c, struct text *out)
{
    for (;;) {
        struct text line = {0};
        if (!take_to(c, "\r\n", &line)) {
            text_free(&line);
            return false;
        }
        const size_t count = strtoul(line.data, NULL, 16);
        text_free(&line);
        if (!http_client_fill(c, count + 2)) return false;
        take(c, count, out);
        take(c, 2, NULL);
        if (count == 0) return true;
    }
}

bool http_reply_header(const struct http_reply *r, const char *name, char *out, size_t size)
{
    const size_t length = strlen(name);
    for (const char *line = r->head.data; line; line = strstr(line, "\r\n")) {
        line += line == r->head.data ? 0 : 2;
        if (strncasecmp(line, name, length) != 0 || line[length] != ':') continue;
        const char *value = line + length + 1 + strspn(line + length + 1, " ");
        snprintf(out, size, "%.*s", (int)strcspn(value, "\r"), value);
        return true;
    }
    return false;
}

void http_client_read(struct http_client *c, bool is_head, struct http_reply *out)
{
    char value[64];
    *out = (struct http_reply){0};
    if (!take_to(c, "\r\n\r\n", &out->head)) return;
    out->status = atoi(out->head.data + strlen("HTTP/1.1 "));
    text_reserve(&out->body, 1);
    text_append(&out->body, "", 0);
    if (is_head || out->status == 204 || out->status == 100) {
        out->whole = true;
    } else if (http_reply_header(out, "Content-Length", value, sizeof value)) {
        const size_t length = strtoul(value, NULL, 10);
        out->whole = http_client_fill(c, length);
        if (out->whole && length > 0) take(c, length, &out->body);
    } else if (http_reply_header(out, "Transfer-Encoding", value, sizeof value)) {
        out->whole = take_chunks(c, &out->body);
    } else {
        while (receive(c)) continue;
        if (c->in.length > 0) take(c, c->in.length, &out->body);
        out->whole = true;
    }
}

void http_reply_free(struct http_reply *r)
{
    text_free(&r->head);
    text_free(&r->body);
}

void http_client_ask(struct http_client *c, const char *method, const char *path, const char *headers, const char *body,
                     struct http_reply *out)
{
    http_client_send(c, method, path, headers, body);
    http_client_read(c, strcmp(method, "HEAD") == 0, out);
}
