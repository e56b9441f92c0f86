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
 * ranks have the same bits, and an element's do not depend on count. */
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

/* Bytes that go from one rank to another. The n-th send to a peer is its n-th receive, of as many bytes. */
struct transfer_args {
    void *x; /* of the device. Of a send, it must not change until it is received; NULL: nothing comes, because what
                was to make it has ended early */
    int64_t bytes;
    int32_t peer;
};
#define TRANSFER_MAX_AHEAD 8 /* sends of a rank that are not received yet */
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

typedef void all_reduce_function(struct backend *b, const struct all_reduce_args *args);
typedef void all_gather_function(struct backend *b, const struct all_gather_args *args);
typedef void all_norm_function(struct backend *b, const struct all_norm_args *args);
/* all_reduce of x [num_tokens, size], and then fused_add_rms_norm, in one kernel; x's contents are lost. One of the
 * optional operations: false, nothing was done, for many tokens, a post norm, left-out scales, quantized rows and what
 * is not a plain RMSNorm. All ranks get the same answer. */
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

#ifdef __cplusplus
}
#endif

#endif
