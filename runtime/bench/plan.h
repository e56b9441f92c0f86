/* Private to device.c: where the operands of an operation lie, what they hold, and how it is called. */
#ifndef QUIRE_RUNTIME_BENCH_PLAN_H
#define QUIRE_RUNTIME_BENCH_PLAN_H

#include "runtime/bench/device.h"

enum { PLAN_MAX_PARTS = 8, PLAN_MAX_SWAPS = 64 /* blocks of a call of swap_blocks */ };

/* Where the operands lie, in bytes from the start of a set or of the fixed operands. A set is filled with small random
 * numbers; calls take turns on several sets. Operands that must hold certain values (positions, block tables) are
 * fixed: there is one copy of them.
 *
 *   memory pool   | part 0 | part 1 | ... | part 0 | part 1 | ... |      fixed   | fixed 0 | fixed 1 | ...
 *                 |<----- set 0 ------->|<----- set 1 ------->|
 */
struct bench_plan {
    int64_t parts[PLAN_MAX_PARTS], fixed[PLAN_MAX_PARTS]; /* offsets in bytes */
    int num_parts, num_fixed;
    int kv_scales; /* the number of the fixed operand */
    int64_t set_bytes, fixed_bytes;
    int64_t host_bytes; /* of pinned host memory; one copy for all sets, since the link is slower than any cache */
    double bytes, link_bytes, operations; /* as in struct bench_time */
};

/* One call: the case, and the set of operands that it works on. */
struct bench_call {
    const struct bench_sizes *sizes;
    const struct bench_case *c;
    const struct bench_plan *plan;
    uint8_t *set, *fixed; /* on the device */
    uint8_t *host;        /* pinned */
};

/* The weight of a matmul, without data, scales and zeros. */
struct weight bench_plan_weight(const struct bench_sizes *sizes, const struct bench_case *c);

void bench_plan_make(const struct bench_sizes *sizes, const struct bench_case *c, struct bench_plan *plan);
/* Writes the fixed operands to host memory [plan->fixed_bytes], which is zeroed. */
void bench_plan_write(const struct bench_sizes *sizes, const struct bench_case *c, const struct bench_plan *plan,
                      uint8_t *fixed);
bool bench_plan_call(struct backend *b, const struct bench_call *call); /* false: the backend does not do this */

#endif
