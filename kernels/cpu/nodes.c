/* Collective operations of CPU ranks of several processes, over TCP. Each process sends what its ranks have to all
 * others, a buffer at a time, and all add up the same numbers in the same order: so there is one way through the
 * network, and the sum has the bits that it has in one process. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/socket.h"
#include "kernels/cpu/group.h"

enum { BUFFER = 1 << 20 /* bytes that a node sends at a time */ };

struct cpu_nodes {
    struct group_nodes of;
    int sockets[COLLECTIVE_MAX_RANKS];
    int32_t per_node;                    /* ranks */
    char *send;                          /* [BUFFER] what is sent to all others */
    char *receive[COLLECTIVE_MAX_RANKS]; /* [BUFFER] what has come from each */
    struct columns {
        int64_t first, count;
    } columns[COLLECTIVE_MAX_RANKS]; /* of all ranks */
};

enum status cpu_nodes_open(const struct group_nodes *nodes, int32_t num_ranks, struct cpu_nodes **out,
                           struct error *err)
{
    struct cpu_nodes *n = calloc(1, sizeof *n);
    *out = n;
    if (n) n->send = malloc((size_t)BUFFER * (size_t)nodes->num_nodes);
    if (!n || !n->send) {
        cpu_nodes_close(n);
        return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory opening a group of %d ranks", nodes->num_ranks);
    }
    n->of = *nodes;
    n->per_node = num_ranks;
    for (int32_t i = 0, buffer = 1; i < nodes->num_nodes; i++) {
        n->sockets[i] = i == nodes->node ? -1 : nodes->sockets[i];
        if (i != nodes->node) n->receive[i] = n->send + (size_t)BUFFER * (size_t)buffer++;
    }
    n->of.sockets = n->sockets;
    return STATUS_OK;
}

void cpu_nodes_close(struct cpu_nodes *n)
{
    if (n) free(n->send);
    free(n);
}

/* ---- the network ---- */

static void fail(struct cpu_state *s, int32_t node, enum socket_result result)
{
    const struct cpu_nodes *n = s->group->nodes;
    char name[GROUP_NODE_NAME], sentence[160];
    group_node_name(node, &n->of, name);
    if (result == SOCKET_TOO_LATE)
        snprintf(sentence, sizeof sentence, "%s has sent nothing for %g seconds", name, n->of.timeout);
    else
        snprintf(sentence, sizeof sentence, "%s has ended: its connection was closed", name);
    group_fail(s->group->failure, STATUS_IO, sentence);
}

/* Sends so many bytes of n->send to each of the others, and receives receive_bytes[node] of it. */
static bool exchange(struct cpu_state *s, size_t send_bytes, const size_t *receive_bytes)
{
    struct cpu_nodes *n = s->group->nodes;
    struct socket_exchange all[COLLECTIVE_MAX_RANKS];
    for (int32_t i = 0; i < n->of.num_nodes; i++)
        all[i] = (struct socket_exchange){.fd = n->sockets[i],
                                          .send = n->send,
                                          .to_send = send_bytes,
                                          .receive = n->receive[i],
                                          .to_receive = receive_bytes[i]};
    if (socket_exchange_all(all, n->of.num_nodes, n->of.timeout)) return true;
    for (int32_t i = 0; i < n->of.num_nodes; i++)
        if (all[i].result != SOCKET_OK) fail(s, i, all[i].result);
    return false;
}

/* The same number of bytes from and to each. */
static bool exchange_equal(struct cpu_state *s, size_t bytes)
{
    size_t receive[COLLECTIVE_MAX_RANKS];
    for (int32_t i = 0; i < COLLECTIVE_MAX_RANKS; i++) receive[i] = bytes;
    return exchange(s, bytes, receive);
}

/* ---- all_reduce ---- */

struct sum {
    const void *parts[COLLECTIVE_MAX_RANKS]; /* of all ranks, in their order */
    void *out[COLLECTIVE_MAX_RANKS];         /* of those of this process */
    int32_t num_parts, num_out;
    int64_t count;
    enum dtype dtype;
};

static void add_piece(const struct cpu_state *s, const void *args, int64_t index, int thread)
{
    const struct sum *a = args;
    const int64_t first = index * CPU_PIECE, count = min_i64(CPU_PIECE, a->count - first);
    float sum[CPU_PIECE], part[CPU_PIECE];
    (void)thread;
    s->kernels->to_float(sum, cpu_element(a->parts[0], a->dtype, first), a->dtype, count);
    for (int32_t k = 1; k < a->num_parts; k++) {
        s->kernels->to_float(part, cpu_element(a->parts[k], a->dtype, first), a->dtype, count);
        for (int64_t i = 0; i < count; i++) sum[i] += part[i];
    }
    for (int32_t k = 0; k < a->num_out; k++)
        s->kernels->from_float(cpu_element_out(a->out[k], a->dtype, first), sum, a->dtype, count);
}

/* The elements from `first` on. */
static bool reduce(struct cpu_state *s, const struct notice *ranks, enum dtype dtype, int64_t first, int64_t count)
{
    struct cpu_nodes *n = s->group->nodes;
    struct sum sum = {.num_parts = n->of.num_ranks, .num_out = n->per_node, .count = count, .dtype = dtype};
    const size_t bytes = (size_t)(count * dtype_size(dtype));
    for (int32_t k = 0; k < n->per_node; k++) {
        sum.out[k] = cpu_element_out(ranks[k].x, dtype, first);
        memcpy(n->send + (size_t)k * bytes, sum.out[k], bytes);
    }
    if (!exchange_equal(s, bytes * (size_t)n->per_node)) return false;
    for (int32_t k = 0; k < n->of.num_ranks; k++) {
        const char *from = k / n->per_node == n->of.node ? n->send : n->receive[k / n->per_node];
        sum.parts[k] = from + (size_t)(k % n->per_node) * bytes;
    }
    cpu_for(s, count * sum.num_parts, divide_up(count, CPU_PIECE), add_piece, &sum);
    return true;
}

void cpu_nodes_all_reduce(struct cpu_state *s, const struct notice *ranks, const struct all_reduce_args *args)
{
    const int64_t at_once = BUFFER / dtype_size(args->dtype) / s->group->nodes->per_node;
    for (int64_t first = 0; first < args->count; first += at_once)
        if (!reduce(s, ranks, args->dtype, first, min_i64(at_once, args->count - first))) return;
}

/* ---- all_gather ---- */

/* A part of the columns of one rank of each node, in some rows. */
struct part {
    int32_t of; /* which rank of its node */
    int64_t row, rows, column, width;
};

static int64_t columns_in(const struct cpu_nodes *n, int32_t node, const struct part *p)
{
    const int64_t left = n->columns[node * n->per_node + p->of].count - p->column;
    return max_i64(0, min_i64(left, p->width));
}

/* Copies the part's columns of a node: from x to the buffer, or back. */
static void copy_part(const struct cpu_nodes *n, int32_t node, const struct part *p, const struct notice *rank,
                      char *buffer, bool back)
{
    const int64_t count = columns_in(n, node, p), first = n->columns[node * n->per_node + p->of].first + p->column;
    const size_t bytes = (size_t)count * sizeof(float);
    for (int64_t row = 0; row < p->rows && count > 0; row++) {
        float *x = (float *)rank->x + (p->row + row) * rank->stride + first;
        char *there = buffer + (size_t)row * bytes;
        memcpy(back ? (void *)x : (void *)there, back ? (void *)there : (void *)x, bytes);
    }
}

static bool gather_part(struct cpu_state *s, const struct notice *ranks, const struct part *p)
{
    struct cpu_nodes *n = s->group->nodes;
    size_t bytes[COLLECTIVE_MAX_RANKS];
    for (int32_t i = 0; i < n->of.num_nodes; i++) bytes[i] = (size_t)(p->rows * columns_in(n, i, p)) * sizeof(float);
    copy_part(n, n->of.node, p, &ranks[p->of], n->send, false);
    if (!exchange(s, bytes[n->of.node], bytes)) return false;
    for (int32_t i = 0; i < n->of.num_nodes; i++)
        for (int32_t k = 0; k < n->per_node && i != n->of.node; k++) copy_part(n, i, p, &ranks[k], n->receive[i], true);
    return true;
}

/* Tells the others which columns the ranks of this process have. */
static bool exchange_columns(struct cpu_state *s, const struct notice *ranks)
{
    struct cpu_nodes *n = s->group->nodes;
    const size_t bytes = (size_t)n->per_node * sizeof *n->columns;
    for (int32_t k = 0; k < n->per_node; k++)
        n->columns[n->of.node * n->per_node + k] = (struct columns){ranks[k].first, ranks[k].columns};
    memcpy(n->send, &n->columns[n->of.node * n->per_node], bytes);
    if (!exchange_equal(s, bytes)) return false;
    for (int32_t i = 0; i < n->of.num_nodes; i++)
        if (i != n->of.node) memcpy(&n->columns[i * n->per_node], n->receive[i], bytes);
    return true;
}

void cpu_nodes_all_gather(struct cpu_state *s, const struct notice *ranks, const struct all_gather_args *args)
{
    enum { FLOATS = BUFFER / sizeof(float) };
    const struct cpu_nodes *n = s->group->nodes;
    struct part p = {0};
    if (!exchange_columns(s, ranks)) return;
    for (p.of = 0; p.of < n->per_node; p.of++) {
        int64_t most = 0;
        for (int32_t i = 0; i < n->of.num_nodes; i++) most = max_i64(most, n->columns[i * n->per_node + p.of].count);
        p.width = min_i64(most, FLOATS);
        for (p.column = 0; p.column < most; p.column += p.width) {
            const int64_t at_once = FLOATS / p.width;
            for (p.row = 0; p.row < args->rows; p.row += at_once) {
                p.rows = min_i64(at_once, args->rows - p.row);
                if (!gather_part(s, ranks, &p)) return;
            }
        }
    }
}

/* ---- agree ---- */

/* Node 0 tells the others, and waits for nobody. */
bool cpu_nodes_agree(struct cpu_state *s, bool mine)
{
    struct cpu_nodes *n = s->group->nodes;
    size_t receive[COLLECTIVE_MAX_RANKS] = {0};
    n->send[0] = mine;
    if (n->of.node == 0) return exchange(s, 1, receive) && mine;
    receive[0] = 1;
    return exchange(s, 0, receive) && n->receive[0][0];
}
