/* A group of CPU ranks (kernels/collective.h): the threads of one process, and other processes with as many. */
#ifndef QUIRE_KERNELS_CPU_GROUP_H
#define QUIRE_KERNELS_CPU_GROUP_H

#include <stdatomic.h>

#include "kernels/cpu/state.h"
#include "kernels/group_failure.h"

enum { CPU_LINE = 128 /* bytes; processors fetch cache lines in pairs */ };

/* What a rank tells the others of its process. */
struct notice {
    void *x;
    int64_t stride, first, columns; /* of all_gather */
    bool agreed;
};

struct cpu_ranks {
    int32_t num_ranks;             /* of this process */
    struct cpu_nodes *nodes;       /* the other processes; NULL: there are none */
    struct group_failure *failure; /* the backends'; NULL: none */
    bool agreed;                   /* what node 0 said last */
    atomic_int members;            /* that have not left */
    /* The ranks at the barrier; and the number of the barrier, on which they sleep, and how many of them do. */
    _Alignas(CPU_LINE) atomic_int arrived;
    _Alignas(CPU_LINE) atomic_uint barriers;
    atomic_int asleep;
    /* Notices of even and of odd calls. A rank that has left the first barrier of a call may write its next notice
     * while others still read this one. It is never two calls ahead. */
    struct notice notices[2][COLLECTIVE_MAX_RANKS];
};

/* nodes.c: the process's part of an operation with the other nodes, which one of its ranks does, between two barriers.
 * `ranks` are all of the process. If a node fails, so does the group. */
enum status cpu_nodes_open(const struct group_nodes *nodes, int32_t num_ranks, struct cpu_nodes **out,
                           struct error *err);
void cpu_nodes_close(struct cpu_nodes *n); /* NULL is allowed */
void cpu_nodes_all_reduce(struct cpu_state *s, const struct notice *ranks, const struct all_reduce_args *args);
void cpu_nodes_all_gather(struct cpu_state *s, const struct notice *ranks, const struct all_gather_args *args);
bool cpu_nodes_agree(struct cpu_state *s, bool mine);

#endif
