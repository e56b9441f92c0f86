#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "model/nodes/connect.h"
#include "model/nodes/nodes_state.h"

static const double PARTING_SECONDS = 2; /* that a node which fails gives the others to read why */

/* ---- messages ---- */

bool node_message_begin(struct nodes *n, enum node_message message, uint32_t model)
{
    const struct node_header header = {.mark = NODE_MARK, .message = message, .model = model};
    text_clear(&n->message);
    return text_append(&n->message, (const char *)&header, sizeof header);
}

enum socket_result node_message_send(struct nodes *n, int32_t to, double end)
{
    struct node_header header;
    memcpy(&header, n->message.data, sizeof header);
    header.bytes = n->message.length - sizeof header;
    memcpy(n->message.data, &header, sizeof header);
    return socket_send(n->control[to], n->message.data, n->message.length, end);
}

enum socket_result node_message_receive(struct nodes *n, int32_t from, double end, struct node_header *header)
{
    enum { MOST = 1 << 30 };
    enum socket_result result = socket_receive(n->control[from], header, sizeof *header, end);
    if (result != SOCKET_OK) return result;
    text_clear(&n->message);
    if (memcmp(header->mark, NODE_MARK, sizeof NODE_MARK) != 0 || header->bytes > MOST ||
        !text_reserve(&n->message, header->bytes))
        return SOCKET_ENDED;
    result = socket_receive(n->control[from], n->message.data, header->bytes, end);
    n->message.length = header->bytes;
    n->message.data[header->bytes] = '\0';
    return result;
}

/* ---- failures ---- */

static void say_ended(const struct nodes *n, int32_t node, enum socket_result result, struct error *out)
{
    const struct group_nodes group = nodes_group(n);
    char name[GROUP_NODE_NAME];
    group_node_name(node, &group, name);
    if (result == SOCKET_TOO_LATE)
        error_set(out, STATUS_IO, "%s has not answered for %g seconds", name, n->options.timeout);
    else
        error_set(out, STATUS_IO, "%s has ended: its connection was closed", name);
}

enum status node_failure(struct nodes *n, int32_t node, enum socket_result result, struct error *err)
{
    enum { PAUSE = 10000 /* microseconds */ };
    struct error why;
    for (int i = 0; i < 50 && !group_has_failed(n->failure); i++) usleep(PAUSE);
    say_ended(n, node, result, &why);
    group_fail(n->failure, STATUS_IO, why.text);
    return group_failure_get(n->failure, err);
}

/* What a node that failed has sent last, without reading it: it may follow answers. */
static bool peek_sentence(int fd, char *out, size_t size)
{
    enum { MOST = 16384 };
    char bytes[MOST];
    const ssize_t count = recv(fd, bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);
    for (const char *at = bytes, *end = bytes + (count > 0 ? count : 0); at && at < end;) {
        struct node_header header;
        at = memmem(at, (size_t)(end - at), NODE_MARK, sizeof NODE_MARK);
        if (!at || (size_t)(end - at) < sizeof header) return false;
        memcpy(&header, at, sizeof header);
        at += sizeof header;
        if (header.message != NODE_FAILED || header.bytes > (size_t)(end - at)) continue;
        snprintf(out, size, "%.*s", (int)header.bytes, at);
        return true;
    }
    return false;
}

/* Wakes who waits for another node. Nothing is sent to the others by that. What node 0 says last is still read. */
static void stop_reading(void *nodes)
{
    const struct nodes *n = nodes;
    for (int32_t i = 0; i < n->options.num_nodes; i++) {
        if (n->control[i] >= 0 && n->options.node == 0) shutdown(n->control[i], SHUT_RD);
        if (n->data[i] >= 0) shutdown(n->data[i], SHUT_RD);
    }
}

static void *watch(void *nodes)
{
    struct nodes *n = nodes;
    struct pollfd polled[COLLECTIVE_MAX_RANKS + 1];
    char sentence[sizeof((struct error *)0)->text];
    for (;;) {
        for (int32_t i = 0; i < n->options.num_nodes; i++)
            polled[i] = (struct pollfd){.fd = n->control[i], .events = POLLRDHUP};
        polled[n->options.num_nodes] = (struct pollfd){.fd = n->wake[0], .events = POLLIN};
        poll(polled, (nfds_t)n->options.num_nodes + 1, -1);
        if (polled[n->options.num_nodes].revents) return NULL;
        for (int32_t i = 0; i < n->options.num_nodes; i++) {
            if (!polled[i].revents) continue;
            if (peek_sentence(n->control[i], sentence, sizeof sentence))
                group_fail(n->failure, STATUS_INTERNAL, sentence);
            node_failure(n, i, SOCKET_ENDED, NULL);
            return NULL;
        }
    }
}

static enum status start_watching(struct nodes *n, struct error *err)
{
    n->watched = pipe2(n->wake, O_CLOEXEC) == 0 && thread_start(&n->watcher, watch, n) == 0;
    return n->watched ? STATUS_OK
                      : error_set(err, STATUS_OUT_OF_MEMORY, "the system gives no thread that watches the nodes");
}

/* ---- start and end ---- */

enum status nodes_open(const struct nodes_options *options, struct nodes **out, struct error *err)
{
    struct nodes *n = calloc(1, sizeof *n);
    *out = NULL;
    if (n) n->failure = group_failure_create();
    if (!n || !n->failure) {
        free(n);
        return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the connections of the nodes");
    }
    n->options = *options;
    n->wake[0] = n->wake[1] = -1;
    for (int32_t i = 0; i < COLLECTIVE_MAX_RANKS; i++) n->control[i] = n->data[i] = -1;
    enum status status = nodes_connect(n, options, err);
    n->options.address = n->options.facts = NULL;
    if (status == STATUS_OK) group_failure_tell(n->failure, stop_reading, n);
    if (status == STATUS_OK) status = start_watching(n, err);
    if (status == STATUS_OK)
        *out = n;
    else
        nodes_close(n);
    return status;
}

/* Tells every other node that is there. */
static void say_goodbye(struct nodes *n)
{
    const double end = clock_seconds() + PARTING_SECONDS;
    struct error why = {""};
    const bool failed = group_failure_get(n->failure, &why) != STATUS_OK;
    for (int32_t i = 0; i < n->options.num_nodes && !n->ended; i++) {
        if (n->control[i] < 0 || !node_message_begin(n, failed ? NODE_FAILED : NODE_END, 0)) continue;
        if (failed) text_append_string(&n->message, why.text);
        node_message_send(n, i, end);
        shutdown(n->control[i], SHUT_WR);
    }
    n->ended = true;
    if (!failed || n->options.node == 0) return;
    /* Node 0 reads why, and ends the connection, before it sees that others of this node have ended. */
    char ignored;
    while (socket_receive(n->control[0], &ignored, 1, end) == SOCKET_OK) continue;
}

void nodes_close(struct nodes *n)
{
    if (!n) return;
    say_goodbye(n);
    if (n->watched) {
        socket_close(&n->wake[1]);
        pthread_join(n->watcher, NULL);
    }
    if (n->wake[0] >= 0) close(n->wake[0]);
    for (int32_t i = 0; i < COLLECTIVE_MAX_RANKS; i++) {
        socket_close(&n->control[i]);
        socket_close(&n->data[i]);
    }
    text_free(&n->message);
    group_failure_free(n->failure);
    free(n);
}

struct group_failure *nodes_failure(struct nodes *n)
{
    return n->failure;
}

struct group_nodes nodes_group(const struct nodes *n)
{
    struct group_nodes group = {.node = n->options.node,
                                .num_nodes = n->options.num_nodes,
                                .num_ranks = n->options.num_ranks,
                                .sockets = n->data,
                                .timeout = n->options.timeout};
    memcpy(group.id, n->id, sizeof group.id);
    return group;
}

void nodes_set_id(struct nodes *n, const uint8_t id[COLLECTIVE_ID_BYTES])
{
    memcpy(n->id, id, sizeof n->id);
}
