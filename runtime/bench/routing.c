#include "runtime/bench/routing.h"

#include <string.h>

#include "base/random.h"

/* Puts the expert into the ascending list of `count`. False: it is there already. */
static bool insert(int32_t *experts, int32_t count, int32_t expert)
{
    int32_t at = count;
    for (int32_t i = 0; i < count; i++)
        if (experts[i] == expert) return false;
    for (; at > 0 && experts[at - 1] > expert; at--) experts[at] = experts[at - 1];
    experts[at] = expert;
    return true;
}

/* The experts of the next token, ascending. */
static void choose(const struct bench_routing *r, struct random *random, int32_t experts[ROUTER_MAX_TOP_K])
{
    for (int32_t k = 0; k < r->top_k;) {
        const int32_t expert = r->same_experts ? (r->number * r->top_k + k) % r->num_experts
                                               : (int32_t)(random_uniform(random) * r->num_experts);
        if (insert(experts, k, expert)) k++;
    }
}

static struct random random_of(const struct bench_routing *r)
{
    return (struct random){(uint64_t)r->number};
}

/* starts[e + 1] becomes the number of rows of expert e. */
static void count_rows(const struct bench_routing *r, int32_t starts[ROUTER_MAX_EXPERTS + 1])
{
    struct random random = random_of(r);
    int32_t experts[ROUTER_MAX_TOP_K];
    memset(starts, 0, (size_t)(r->num_experts + 1) * sizeof *starts);
    for (int32_t t = 0; t < r->num_tokens; t++) {
        choose(r, &random, experts);
        for (int32_t k = 0; k < r->top_k; k++) starts[experts[k] + 1]++;
    }
}

int32_t bench_routing_experts(const struct bench_routing *r)
{
    int32_t starts[ROUTER_MAX_EXPERTS + 1], count = 0;
    count_rows(r, starts);
    for (int32_t e = 0; e < r->num_experts; e++) count += starts[e + 1] > 0;
    return count;
}

void bench_routing_write(const struct bench_routing *r, const struct expert_plan *plan)
{
    struct random random = random_of(r);
    int32_t experts[ROUTER_MAX_TOP_K], next[ROUTER_MAX_EXPERTS];
    count_rows(r, plan->starts);
    for (int32_t e = 0; e < r->num_experts; e++) {
        next[e] = plan->starts[e];
        plan->starts[e + 1] += plan->starts[e];
    }
    for (int32_t t = 0; t < r->num_tokens; t++) {
        choose(r, &random, experts);
        for (int32_t k = 0; k < r->top_k; k++) {
            const int32_t row = next[experts[k]]++;
            plan->rows[t * r->top_k + k] = row;
            plan->tokens[row] = t;
            plan->weights[t * r->top_k + k] = 1.0f / (float)r->top_k;
        }
    }
}
