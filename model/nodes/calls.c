#include "model/nodes/calls.h"

#include <string.h>

#include "base/clock.h"
#include "model/nodes/batch_message.h"
#include "model/nodes/nodes_state.h"

static bool has_others(const struct nodes *n)
{
    return n && n->options.node == 0;
}

static double end_of(const struct nodes *n)
{
    return clock_seconds() + n->options.timeout;
}

/* Sends n->message to all others; `made`: memory was enough for it. */
static void send_to_all(struct nodes *n, bool made)
{
    if (!made) group_fail(n->failure, STATUS_OUT_OF_MEMORY, "out of host memory for what is sent to the other nodes");
    for (int32_t i = 1; i < n->options.num_nodes && !group_has_failed(n->failure); i++) {
        const enum socket_result result = node_message_send(n, i, end_of(n));
        struct error ignored;
        if (result != SOCKET_OK) node_failure(n, i, result, &ignored);
    }
}

void nodes_call(struct nodes *n, enum node_message message, uint32_t model, const void *bytes, size_t count)
{
    if (!has_others(n)) return;
    send_to_all(n, node_message_begin(n, message, model) && (count == 0 || text_append(&n->message, bytes, count)));
}

void nodes_call_set_sampling_state(struct nodes *n, int32_t state_index, const struct sampling_state *state,
                                   const int32_t *tokens, int32_t num_tokens)
{
    if (!has_others(n)) return;
    const int32_t numbers[] = {state_index, num_tokens};
    send_to_all(n, node_message_begin(n, NODE_SAMPLING_STATE, 0) &&
                       text_append(&n->message, (const char *)numbers, sizeof numbers) &&
                       text_append(&n->message, (const char *)state, sizeof *state) &&
                       (num_tokens == 0 ||
                        text_append(&n->message, (const char *)tokens, (size_t)num_tokens * sizeof *tokens)));
}

void nodes_call_submit(struct nodes *n, uint32_t model, const struct batch *batch)
{
    if (!has_others(n)) return;
    send_to_all(n, node_message_begin(n, NODE_SUBMIT, model) && batch_message_append(batch, &n->message));
}

/* Receives a node's answer, and its sentence if it failed. */
static enum status receive_answer(struct nodes *n, int32_t node, struct node_answer *answer, struct error *err)
{
    struct node_header header;
    const enum socket_result result = node_message_receive(n, node, end_of(n), &header);
    if (result == SOCKET_OK && header.message == NODE_FAILED)
        group_fail(n->failure, STATUS_INTERNAL, n->message.data); /* the watcher does not find it any more */
    if (result != SOCKET_OK || header.message != NODE_ANSWER || header.bytes < sizeof *answer)
        return node_failure(n, node, result == SOCKET_TOO_LATE ? result : SOCKET_ENDED, err);
    memcpy(answer, n->message.data, sizeof *answer);
    if (answer->status == STATUS_OK) return STATUS_OK;
    return error_set(err, (enum status)answer->status, "node %d: %s", node, n->message.data + sizeof *answer);
}

enum status nodes_answers(struct nodes *n, enum status mine, int32_t *added, struct error *err)
{
    enum status status = mine;
    if (!has_others(n)) return mine;
    for (int32_t i = 1; i < n->options.num_nodes; i++) {
        struct node_answer answer;
        struct error why;
        const enum status theirs = receive_answer(n, i, &answer, &why);
        if (theirs == STATUS_OK && added && answer.added < *added) *added = answer.added;
        if (theirs == STATUS_OK || status != STATUS_OK) continue;
        status = theirs;
        if (err) *err = why;
    }
    return status;
}

enum status nodes_memory(struct nodes *n, int64_t *available, int64_t *total, struct error *err)
{
    if (!has_others(n)) return STATUS_OK;
    nodes_call(n, NODE_MEMORY, 0, NULL, 0);
    for (int32_t i = 1; i < n->options.num_nodes; i++) {
        struct node_answer answer;
        const enum status status = receive_answer(n, i, &answer, err);
        if (status != STATUS_OK) return status;
        if (answer.available >= *available) continue;
        *available = answer.available;
        *total = answer.total;
    }
    return STATUS_OK;
}
