/* Which experts the tokens of a benchmark go to: random ones for each, which spreads them evenly, or the same for all.
 * Routings of several numbers take different experts. */
#ifndef QUIRE_RUNTIME_BENCH_ROUTING_H
#define QUIRE_RUNTIME_BENCH_ROUTING_H

#include "kernels/backend.h"

struct bench_routing {
    int32_t num_experts, top_k, num_tokens, number;
    bool same_experts;
};

/* How many experts have rows. */
int32_t bench_routing_experts(const struct bench_routing *r);
/* Writes the plan, whose arrays are on the host; the weights of a token are equal. */
void bench_routing_write(const struct bench_routing *r, const struct expert_plan *plan);

#endif
