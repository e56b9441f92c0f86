#include "model/nodes/connect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

static const double HELLO_SECONDS = 10; /* that a connection has to say who it is */

enum purpose { PURPOSE_CALLS, PURPOSE_COLLECTIVES };

/* What a node says first on a connection. */
struct hello {
    char mark[8]; /* HELLO_MARK, and 0 */
    int32_t purpose, node, num_nodes, num_ranks;
    int32_t port;       /* where it listens for the nodes behind it */
    uint32_t num_facts; /* bytes of the facts, which follow */
};
#define HELLO_MARK "quire-n"

/* What node 0 answers when all have come. */
struct welcome {
    int32_t ok; /* else the sentence says why the nodes cannot work together */
    char sentence[1024];
    struct socket_name names[COLLECTIVE_MAX_RANKS]; /* where the nodes listen; not node 0's */
};

/* A rendezvous in the making. */
struct meeting {
    struct nodes *n;
    const struct nodes_options *options;
    double end;
    int listener;
    struct socket_name names[COLLECTIVE_MAX_RANKS];
};

/* ---- what must be alike ---- */

/* The next line, without its end. */
static bool next_line(const char **at, const char **line, int *length)
{
    if (!**at) return false;
    *line = *at;
    *length = (int)strcspn(*at, "\n");
    *at += *length + ((*at)[*length] == '\n');
    return true;
}

static int name_length(const char *line, int length)
{
    const char *colon = memchr(line, ':', (size_t)length);
    return colon ? (int)(colon - line) : length;
}

static const char *value_of(const char *line, int length, int *value_length)
{
    const int name = name_length(line, length), skip = name + 2 < length ? name + 2 : length;
    *value_length = length - skip;
    return line + skip;
}

/* Compares line by line. */
static enum status check_facts(int32_t node, const char *mine, const char *theirs, struct error *err)
{
    const char *a, *b;
    int a_length, b_length, a_value, b_value;
    while (next_line(&mine, &a, &a_length)) {
        if (!next_line(&theirs, &b, &b_length)) b = "", b_length = 0;
        if (a_length == b_length && memcmp(a, b, (size_t)a_length) == 0) continue;
        const char *mine_is = value_of(a, a_length, &a_value), *theirs_is = value_of(b, b_length, &b_value);
        return error_set(err, STATUS_INVALID,
                         "all nodes need the same %.*s, but node 0 has \"%.*s\", and node %d \"%.*s\"",
                         name_length(a, a_length), a, a_value, mine_is, node, b_value, theirs_is);
    }
    return STATUS_OK;
}

static enum status check_hello(const struct meeting *m, const struct hello *h, const char *facts, struct error *err)
{
    const struct nodes_options *o = m->options;
    if (h->num_nodes != o->num_nodes)
        return error_set(err, STATUS_INVALID, "node 0 was told of %d nodes, but node %d of %d", o->num_nodes, h->node,
                         h->num_nodes);
    if (h->node < 1 || h->node >= o->num_nodes)
        return error_set(err, STATUS_INVALID, "a second process says that it is node %d", h->node);
    if (m->n->control[h->node] >= 0)
        return error_set(err, STATUS_INVALID, "two processes say that they are node %d", h->node);
    if (h->num_ranks != o->num_ranks)
        return error_set(err, STATUS_INVALID,
                         "all nodes need the same tensor_parallel_size, but node 0 has %d, and node %d %d",
                         o->num_ranks, h->node, h->num_ranks);
    return check_facts(h->node, o->facts, facts, err);
}

/* ---- node 0 ---- */

/* Receives what comes first on a connection; *facts is to be freed. False: it is not a node that connected. */
static bool receive_hello(int fd, double end, struct hello *h, char **facts)
{
    enum { MOST_FACTS = 65536 };
    const double most = clock_seconds() + HELLO_SECONDS;
    *facts = NULL;
    if (end > most) end = most;
    if (socket_receive(fd, h, sizeof *h, end) != SOCKET_OK || memcmp(h->mark, HELLO_MARK, sizeof HELLO_MARK) != 0 ||
        h->num_facts > MOST_FACTS)
        return false;
    *facts = calloc(1, (size_t)h->num_facts + 1);
    return *facts && socket_receive(fd, *facts, h->num_facts, end) == SOCKET_OK;
}

/* Names of the nodes that have not come: "node 1", "nodes 1 and 3". */
static void name_missing(const struct meeting *m, char *out, size_t size)
{
    int32_t missing[COLLECTIVE_MAX_RANKS], count = 0;
    for (int32_t i = 1; i < m->options->num_nodes; i++)
        if (m->n->control[i] < 0) missing[count++] = i;
    size_t length = (size_t)snprintf(out, size, "node%s", count == 1 ? "" : "s");
    for (int32_t i = 0; i < count && length < size; i++)
        length += (size_t)snprintf(out + length, size - length, "%s %d",
                                   i == 0           ? ""
                                   : i == count - 1 ? " and"
                                                    : ",",
                                   missing[i]);
}

static enum status not_come(const struct meeting *m, struct error *err)
{
    char missing[96];
    name_missing(m, missing, sizeof missing);
    return error_set(err, STATUS_IO, "%s did not connect to port %d of %s in %g seconds", missing, m->options->port,
                     m->options->address, m->options->timeout);
}

/* Takes one connection that is to be for calls. */
static enum status take_node(struct meeting *m, struct error *err)
{
    struct hello h;
    char *facts;
    int fd;
    enum status status = socket_accept(m->listener, m->end, &fd, err);
    if (status != STATUS_OK) return status == STATUS_CANCELLED ? not_come(m, err) : status;
    if (!receive_hello(fd, m->end, &h, &facts) || h.purpose != PURPOSE_CALLS) {
        free(facts);
        socket_close(&fd); /* not a node */
        return STATUS_OK;
    }
    status = check_hello(m, &h, facts, err);
    free(facts);
    if (status == STATUS_OK && socket_peer_name(fd, &m->names[h.node])) {
        m->names[h.node].port = h.port;
        m->n->control[h.node] = fd;
        return STATUS_OK;
    }
    if (status == STATUS_OK) status = error_set(err, STATUS_IO, "the address of node %d cannot be read", h.node);
    struct welcome w = {0};
    snprintf(w.sentence, sizeof w.sentence, "%.1000s", err->text);
    socket_send(fd, &w, sizeof w, clock_seconds() + HELLO_SECONDS);
    socket_close(&fd);
    return status;
}

static bool all_came(const struct meeting *m)
{
    for (int32_t i = 1; i < m->options->num_nodes; i++)
        if (m->n->control[i] < 0) return false;
    return true;
}

/* Tells all that have come whether they can go on, and where the others are. */
static enum status welcome(struct meeting *m, enum status status, struct error *err)
{
    struct welcome w = {.ok = status == STATUS_OK};
    if (!w.ok) snprintf(w.sentence, sizeof w.sentence, "%.1000s", err->text);
    memcpy(w.names, m->names, sizeof w.names);
    for (int32_t i = 1; i < m->options->num_nodes; i++) {
        if (m->n->control[i] < 0) continue;
        if (socket_send(m->n->control[i], &w, sizeof w, m->end) == SOCKET_OK || !w.ok) continue;
        return error_set(err, STATUS_IO, "node %d has ended while the nodes connected", i);
    }
    return status;
}

/* ---- between two nodes ---- */

static struct hello hello_of(const struct meeting *m, enum purpose purpose)
{
    const struct nodes_options *o = m->options;
    return (struct hello){
        .mark = HELLO_MARK, .purpose = purpose, .node = o->node, .num_nodes = o->num_nodes, .num_ranks = o->num_ranks};
}

/* Connects to the nodes before this one. */
static enum status connect_to_earlier(struct meeting *m, struct error *err)
{
    const struct hello h = hello_of(m, PURPOSE_COLLECTIVES);
    for (int32_t i = 0; i < m->options->node; i++) {
        const struct socket_name *to = &m->names[i];
        struct error why;
        int *fd = &m->n->data[i];
        if (socket_connect(to->address, to->port, m->end, fd, &why) != STATUS_OK)
            return error_set(err, STATUS_IO, "node %d cannot reach node %d: %s", m->options->node, i, why.text);
        if (socket_send(*fd, &h, sizeof h, m->end) != SOCKET_OK)
            return error_set(err, STATUS_IO, "node %d has ended while the nodes connected", i);
    }
    return STATUS_OK;
}

/* Takes the connections of the nodes behind this one. */
static enum status take_later(struct meeting *m, struct error *err)
{
    for (int32_t left = m->options->num_nodes - 1 - m->options->node; left > 0;) {
        struct hello h;
        char *facts = NULL;
        int fd;
        const enum status status = socket_accept(m->listener, m->end, &fd, err);
        if (status == STATUS_CANCELLED)
            return error_set(err, STATUS_IO, "%d node%s did not connect to node %d in %g seconds", left,
                             left == 1 ? "" : "s", m->options->node, m->options->timeout);
        if (status != STATUS_OK) return status;
        const bool good = receive_hello(fd, m->end, &h, &facts) && h.purpose == PURPOSE_COLLECTIVES &&
                          h.node > m->options->node && h.node < m->options->num_nodes && m->n->data[h.node] < 0;
        free(facts);
        if (good)
            m->n->data[h.node] = fd, left--;
        else
            socket_close(&fd);
    }
    return STATUS_OK;
}

/* ---- the other nodes ---- */

/* Says who this node is, and where it listens: at the address by which it reaches node 0. */
static enum status introduce(struct meeting *m, struct error *err)
{
    const struct nodes_options *o = m->options;
    struct hello h = hello_of(m, PURPOSE_CALLS);
    struct socket_name own;
    struct error why;
    if (socket_connect(o->address, o->port, m->end, &m->n->control[0], &why) != STATUS_OK)
        return error_set(err, STATUS_IO, "node %d cannot reach node 0 in %g seconds: %s", o->node, o->timeout,
                         why.text);
    if (!socket_own_name(m->n->control[0], &own))
        return error_set(err, STATUS_IO, "the address of node %d cannot be read", o->node);
    enum status status = socket_listen(own.address, 0, &m->listener, err);
    if (status != STATUS_OK || !socket_own_name(m->listener, &own)) return status;
    h.port = own.port;
    h.num_facts = (uint32_t)strlen(o->facts);
    if (socket_send(m->n->control[0], &h, sizeof h, m->end) == SOCKET_OK &&
        socket_send(m->n->control[0], o->facts, h.num_facts, m->end) == SOCKET_OK)
        return STATUS_OK;
    return error_set(err, STATUS_IO, "node 0 has ended while the nodes connected");
}

static enum status wait_for_welcome(struct meeting *m, struct error *err)
{
    struct welcome w;
    const struct nodes_options *o = m->options;
    const enum socket_result result = socket_receive(m->n->control[0], &w, sizeof w, m->end);
    if (result == SOCKET_TOO_LATE)
        return error_set(err, STATUS_IO, "what listens at port %d of %s has not answered node %d in %g seconds",
                         o->port, o->address, o->node, o->timeout);
    if (result != SOCKET_OK)
        return error_set(
            err, STATUS_IO,
            "what listens at port %d of %s has closed the connection of node %d: it is no node 0, or it has "
            "ended",
            o->port, o->address, o->node);
    w.sentence[sizeof w.sentence - 1] = '\0';
    if (!w.ok) return error_set(err, STATUS_INVALID, "%s", w.sentence);
    memcpy(m->names, w.names, sizeof m->names);
    snprintf(m->names[0].address, sizeof m->names[0].address, "%s", o->address);
    m->names[0].port = o->port;
    return STATUS_OK;
}

/* ---- all of it ---- */

enum status nodes_connect(struct nodes *n, const struct nodes_options *options, struct error *err)
{
    struct meeting m = {.n = n, .options = options, .end = clock_seconds() + options->timeout, .listener = -1};
    enum status status;
    if (options->node == 0) {
        status = socket_listen(options->address, options->port, &m.listener, err);
        while (status == STATUS_OK && !all_came(&m)) status = take_node(&m, err);
        status = welcome(&m, status, err);
    } else {
        status = introduce(&m, err);
        if (status == STATUS_OK) status = wait_for_welcome(&m, err);
        if (status == STATUS_OK) status = connect_to_earlier(&m, err);
    }
    if (status == STATUS_OK) status = take_later(&m, err);
    socket_close(&m.listener);
    n->ended = status != STATUS_OK; /* there is nothing that could be said */
    return status;
}
