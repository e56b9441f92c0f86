#include "runtime/serve/http_listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/serve/http.h"

static bool listen_to(int fd)
{
    return listen(fd, SOMAXCONN) == 0;
}

/* ---- addresses and names ---- */

/* Port of a bound socket; 0 if it has none. */
static int port_of(int fd)
{
    struct sockaddr_storage a;
    socklen_t length = sizeof a;
    if (getsockname(fd, (struct sockaddr *)&a, &length) != 0) return 0;
    if (a.ss_family == AF_INET) return ntohs(((struct sockaddr_in *)&a)->sin_port);
    if (a.ss_family == AF_INET6) return ntohs(((struct sockaddr_in6 *)&a)->sin6_port);
    return 0;
}

static void set_port(struct sockaddr *a, int port)
{
    if (a->sa_family == AF_INET) ((struct sockaddr_in *)a)->sin_port = htons((uint16_t)port);
    if (a->sa_family == AF_INET6) ((struct sockaddr_in6 *)a)->sin6_port = htons((uint16_t)port);
}

/* 0, or why the address cannot be listened on. "::" takes IPv4, too. */
static int listen_on_address(const struct addrinfo *a, int *out)
{
    const int on = 1, off = 0;
    const int fd = socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, a->ai_protocol);
    if (fd < 0) return errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (a->ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(fd, a->ai_addr, a->ai_addrlen) != 0 || !listen_to(fd)) {
        const int error = errno;
        close(fd);
        return error;
    }
    *out = fd;
    return 0;
}

static enum status resolve(const struct http_options *o, struct addrinfo **out, struct error *err)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    char service[16];
    snprintf(service, sizeof service, "%d", o->port);
    const int error = getaddrinfo(o->host, service, &hints, out);
    if (error == 0) return STATUS_OK;
    return error_set(err, STATUS_IO, "'%s' is no address of this machine: %s", o->host,
                     error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error));
}

/* Whether the system has named this address already. */
static bool is_repeated(const struct addrinfo *found, const struct addrinfo *a)
{
    for (; found != a; found = found->ai_next)
        if (found->ai_addrlen == a->ai_addrlen && memcmp(found->ai_addr, a->ai_addr, a->ai_addrlen) == 0) return true;
    return false;
}

/* All addresses of the name get the same port. An address of a kind that this machine does not have is left out. */
static enum status listen_on_name(const struct http_options *o, struct http_listener *l, struct error *err)
{
    struct addrinfo *found;
    enum status status = resolve(o, &found, err);
    if (status != STATUS_OK) return status;
    int port = o->port, error = 0;
    for (const struct addrinfo *a = found; a && l->count < HTTP_MAX_SOCKETS; a = a->ai_next) {
        set_port(a->ai_addr, port);
        if (is_repeated(found, a)) continue;
        error = listen_on_address(a, &l->fds[l->count]);
        if (error == EAFNOSUPPORT || error == EADDRNOTAVAIL) continue;
        if (error != 0) break;
        port = port_of(l->fds[l->count++]);
    }
    freeaddrinfo(found);
    if (l->count == 0 || (error != 0 && error != EAFNOSUPPORT && error != EADDRNOTAVAIL))
        return error_set(err, STATUS_IO, "cannot listen on port %d of %s: %s", port, o->host, strerror(error));
    const bool is_ipv6 = strchr(o->host, ':') != NULL;
    snprintf(l->url, sizeof l->url, "http%s://%s%.255s%s:%d", o->certificate ? "s" : "", is_ipv6 ? "[" : "", o->host,
             is_ipv6 ? "]" : "", port);
    return STATUS_OK;
}

/* ---- Unix sockets ---- */

/* Removes the file of a socket that no process listens on. */
static enum status remove_stale(const struct sockaddr_un *a, struct error *err)
{
    struct stat s;
    if (lstat(a->sun_path, &s) != 0) {
        if (errno == ENOENT) return STATUS_OK;
        return error_set(err, STATUS_IO, "%s: %s", a->sun_path, strerror(errno));
    }
    if (!S_ISSOCK(s.st_mode))
        return error_set(err, STATUS_IO, "%s: expected a socket or no file, but it is another kind of file",
                         a->sun_path);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return error_set(err, STATUS_IO, "cannot make a socket: %s", strerror(errno));
    const bool is_stale = connect(fd, (const struct sockaddr *)a, sizeof *a) != 0 && errno == ECONNREFUSED;
    close(fd);
    if (!is_stale) return error_set(err, STATUS_IO, "%s: another process listens on this socket", a->sun_path);
    if (unlink(a->sun_path) != 0 && errno != ENOENT)
        return error_set(err, STATUS_IO, "%s: cannot remove the socket that an ended process left: %s", a->sun_path,
                         strerror(errno));
    return STATUS_OK;
}

/* The file has its mode when it appears: bind takes it from the descriptor, less the umask. */
static bool bind_path(int fd, const struct sockaddr_un *a, mode_t mode)
{
    return fchmod(fd, mode & 0600) == 0 && bind(fd, (const struct sockaddr *)a, sizeof *a) == 0 &&
           chmod(a->sun_path, mode) == 0 && listen_to(fd);
}

static enum status listen_on_path(const struct http_options *o, const char *path, struct http_listener *l,
                                  struct error *err)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    struct stat s;
    if (*path == 0 || strlen(path) >= sizeof a.sun_path)
        return error_set(err, STATUS_INVALID, "'%s' cannot name a Unix socket: 1 to %zu characters are possible", path,
                         sizeof a.sun_path - 1);
    strcpy(a.sun_path, path);
    const enum status status = remove_stale(&a, err);
    if (status != STATUS_OK) return status;
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || !bind_path(fd, &a, o->socket_mode ? (mode_t)o->socket_mode : 0600) || stat(path, &s) != 0) {
        const int error = errno;
        if (fd >= 0) close(fd);
        return error_set(err, STATUS_IO, "%s: cannot listen: %s", path, strerror(error));
    }
    l->fds[l->count++] = fd;
    l->device = s.st_dev;
    l->inode = s.st_ino;
    strcpy(l->path, path);
    snprintf(l->url, sizeof l->url, "unix:%s", path);
    return STATUS_OK;
}

/* ---- socket activation ---- */

static bool is_listening(int fd)
{
    int value = 0;
    socklen_t length = sizeof value;
    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &value, &length) == 0 && value != 0;
}

/* The URL of a socket that another process has bound. */
static void describe(int fd, bool tls, struct http_listener *l)
{
    struct sockaddr_storage a = {0};
    socklen_t length = sizeof a;
    char host[INET6_ADDRSTRLEN] = "";
    const char *scheme = tls ? "https" : "http";
    getsockname(fd, (struct sockaddr *)&a, &length);
    if (a.ss_family == AF_UNIX) {
        const char *path = ((struct sockaddr_un *)&a)->sun_path;
        snprintf(l->url, sizeof l->url, "unix:%s%.107s", *path ? "" : "@", *path ? path : path + 1);
    } else if (a.ss_family == AF_INET6) {
        inet_ntop(AF_INET6, &((struct sockaddr_in6 *)&a)->sin6_addr, host, sizeof host);
        snprintf(l->url, sizeof l->url, "%s://[%s]:%d", scheme, host, port_of(fd));
    } else {
        inet_ntop(AF_INET, &((struct sockaddr_in *)&a)->sin_addr, host, sizeof host);
        snprintf(l->url, sizeof l->url, "%s://%s:%d", scheme, host, port_of(fd));
    }
}

/* The protocol of sd_listen_fds(3): descriptors from 3 on, if LISTEN_PID names this process. */
static enum status listen_on_inherited(const struct http_options *o, struct http_listener *l, struct error *err)
{
    const char *pid = getenv("LISTEN_PID"), *number = getenv("LISTEN_FDS");
    const int count = pid && number && atol(pid) == (long)getpid() ? atoi(number) : 0;
    if (count < 1 || count > HTTP_MAX_SOCKETS)
        return error_set(err, STATUS_INVALID,
                         "expected 1 to %d sockets from the process that started this one (LISTEN_FDS, LISTEN_PID), "
                         "but there are %d",
                         HTTP_MAX_SOCKETS, count);
    for (int fd = 3; fd < 3 + count; fd++) {
        if (!is_listening(fd))
            return error_set(err, STATUS_INVALID, "descriptor %d of LISTEN_FDS is no socket that listens", fd);
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
        l->fds[l->count++] = fd;
    }
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    describe(l->fds[0], o->certificate != NULL, l);
    return STATUS_OK;
}

/* ---- both ---- */

enum status http_listener_open(const struct http_options *options, struct http_listener *out, struct error *err)
{
    enum status status;
    *out = (struct http_listener){0};
    if (options->inherited)
        status = listen_on_inherited(options, out, err);
    else if (strncmp(options->host, "unix:", 5) == 0)
        status = listen_on_path(options, options->host + 5, out, err);
    else
        status = listen_on_name(options, out, err);
    if (status != STATUS_OK) http_listener_close(out);
    return status;
}

void http_listener_close(struct http_listener *l)
{
    struct stat s;
    for (int i = 0; i < l->count; i++) close(l->fds[i]);
    l->count = 0;
    if (l->path[0] && lstat(l->path, &s) == 0 && s.st_dev == l->device && s.st_ino == l->inode) unlink(l->path);
    l->path[0] = 0;
}
