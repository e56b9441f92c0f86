/* Collective operations: what the ranks of one model, which each compute a share of every layer (tensor parallelism:
 * Shoeybi et al., 2019), do together.
 *
 * A rank is a backend and the thread that calls its operations. All ranks of a group call the same collective
 * operations, with the same sizes, in the same order. A collective operation is one of the backend's operations: it
 * works on the main stream, neither allocates nor synchronizes, and can be captured in a graph. On the CPU it returns
 * when it is done. */
#ifndef QUIRE_KERNELS_COLLECTIVE_H
#define QUIRE_KERNELS_COLLECTIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "kernels/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

#define COLLECTIVE_MAX_RANKS 8

struct backend;
struct fused_add_rms_norm_args;

/* x [count] of all ranks becomes their sum, which is added in float32, in the order of the ranks, and rounded once: all
 * ranks have the same bits, and an element's do not depend on count. Where NCCL adds (GPUs of several processes, and
 * very many elements) this is true of two ranks; of more, all ranks have the same bits. */
struct all_reduce_args {
    void *x;
    int64_t count;
    enum dtype dtype; /* of activations */
};

/* x [rows, stride]: each rank has columns first .. first + columns - 1 of the first `total` ones, rank by rank; then
 * all ranks have all of them. */
struct all_gather_args {
    float *x;
    int64_t rows, stride, total;
    int64_t first, columns;
};

/* RMSNorms of elements that ranks have between them, in place: of each token, x is divided by
 * sqrt(mean(x^2) + eps) and multiplied by the gains, where the mean is that over the ranks of a group. Ranks are in
 * num_groups groups of equal size, the first ones in group 0. Elements that several ranks of a group have count as
 * often.
 *
 * With a gate it is the gated norm of kernels/recurrence.h: norm(x) * f(gate) or, with gate_first, norm(x * f(gate)).
 */
struct all_norm {
    void *x; /* [num_tokens, size] dtype */
    int64_t stride;
    int32_t size; /* of each rank */
    int32_t num_groups;
    const void *gain; /* [size] gain_dtype */
    enum dtype gain_dtype;
    float eps;
    const void *gate; /* [num_tokens, size] dtype, of which tokens are gate_stride elements apart; NULL: none */
    int64_t gate_stride;
    bool gate_first, sigmoid, round_norm;
};

enum { ALL_NORM_MAX = 2 };
struct all_norm_args {
    struct all_norm norms[ALL_NORM_MAX]; /* [num_norms] */
    int32_t num_norms, num_tokens;
    int32_t rank, num_ranks;
    float *squares; /* [num_tokens, the sum of num_groups]: room for sums that all_reduce adds */
    enum dtype dtype;
};

/* out[t][i] = x[t][order[i]], where ranks have x [num_tokens, total] between them: each the columns first .. first +
 * columns - 1, rank by rank. */
struct gather_columns_args {
    void *out;            /* [num_tokens, size] dtype; not x */
    const void *x;        /* [num_tokens, columns] dtype */
    const int32_t *order; /* [size] on the device */
    float *all;           /* [num_tokens, total]: room for all columns */
    int64_t first, columns, total, size;
    int32_t num_tokens;
    enum dtype dtype;
};

/* Bytes that go from one rank to another. The n-th send to a peer is its n-th receive, of as many bytes. */
struct transfer_args {
    void *x; /* of the device. Of a send, it must not change until it is received; NULL: nothing comes, because what
                was to make it has ended early */
    int64_t bytes;
    int32_t peer;
};
#define TRANSFER_MAX_AHEAD 8 /* sends of a rank that are not received yet */

typedef void all_reduce_function(struct backend *b, const struct all_reduce_args *args);
typedef void all_gather_function(struct backend *b, const struct all_gather_args *args);
typedef void all_norm_function(struct backend *b, const struct all_norm_args *args);
typedef void gather_columns_function(struct backend *b, const struct gather_columns_args *args);
/* all_reduce of x [num_tokens, size], and then fused_add_rms_norm, in one kernel; x's contents are lost. One of the
 * optional operations: false, nothing was done, for many tokens of more than two ranks, a post norm, left-out scales
 * and what is not a plain RMSNorm. All ranks get the same answer. */
typedef bool all_reduce_add_norm_function(struct backend *b, const struct fused_add_rms_norm_args *args);
/* Whether rank 0 says so. Only a CPU has it. */
typedef bool agree_function(struct backend *b, bool mine);

/* Neither waits for the device. A send returns at once. A receive waits until the peer's thread has called send; then
 * what follows on the main stream finds x, after the peer's device has made it. False: nothing came. They cannot be
 * captured in a graph. */
typedef void send_function(struct backend *b, const struct transfer_args *args);
typedef bool receive_function(struct backend *b, const struct transfer_args *args);

/* Makes the backends, all of one kind, ranks 0 .. num_ranks - 1 of a group: from now on they have collective
 * operations. Call it once, from one thread. The group ends with the last of its backends; none of them may begin an
 * operation of the group when another is destroyed. One rank is no group, and gets no operations. UNSUPPORTED: the
 * devices cannot reach each other's memory.
 *
 * An operation waits on its device until all ranks have begun it. So no rank's thread may wait for another's device in
 * between, which freeing device memory may do. */
enum status backend_group_open(struct backend *const *ranks, int32_t num_ranks, struct error *err);
enum status backend_cpu_group_open(struct backend *const *ranks, int32_t num_ranks, struct error *err);
enum status backend_cuda_group_open(struct backend *const *ranks, int32_t num_ranks, struct error *err);

/* Makes the backends, all of one kind, ranks 0 .. num_ranks - 1 that send to each other, beside the groups that they
 * may be in. Their devices need not reach each other's memory. Call it once, from one thread. One rank gets no
 * operations.
 */
enum status backend_transfers_open(struct backend *const *ranks, int32_t num_ranks, struct error *err);

/* A group whose ranks are in several processes, the nodes: as many in each, node by node. */
enum { COLLECTIVE_ID_BYTES = 128 };
struct group_nodes {
    int32_t node, num_nodes, num_ranks; /* of all nodes */
    const int *sockets;                 /* [num_nodes] of CPUs, connected to the other nodes; the caller's */
    double timeout;                     /* seconds that a node may wait for another */
    uint8_t id[COLLECTIVE_ID_BYTES];    /* of GPUs: the same in all nodes (backend_group_make_id) */
};
/* "node 1 (rank 1)", "node 2 (ranks 4 and 5)", "node 1 (ranks 4 to 7)". */
enum { GROUP_NODE_NAME = 64 };
void group_node_name(int32_t node, const struct group_nodes *nodes, char out[GROUP_NODE_NAME]);

/* Makes the backends, all of one kind, this node's ranks of such a group, as backend_group_open does in one process.
 * All nodes call it, and it waits for them. The backends' `failure` is set (group_failure.h). */
enum status backend_group_join(struct backend *const *ranks, int32_t count, const struct group_nodes *nodes,
                               struct error *err);
enum status backend_cpu_group_join(struct backend *const *ranks, int32_t count, const struct group_nodes *nodes,
                                   struct error *err);
enum status backend_cuda_group_join(struct backend *const *ranks, int32_t count, const struct group_nodes *nodes,
                                    struct error *err);
/* Fills id, for a group of devices like b. */
enum status backend_group_make_id(const struct backend *b, uint8_t id[COLLECTIVE_ID_BYTES], struct error *err);
enum status backend_cuda_group_make_id(uint8_t id[COLLECTIVE_ID_BYTES], struct error *err);

#ifdef __cplusplus
}
#endif

#endif
