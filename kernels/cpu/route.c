/* The router of a mixture of experts: each token chooses its experts, then the assignments are sorted by expert. */
#include <math.h>
#include <string.h>

#include "kernels/cpu/state.h"

/* What a token's router computes, for each expert. */
struct scores {
    float score[ROUTER_MAX_EXPERTS];  /* logits of ROUTER_SPARSEMIXER */
    float choice[ROUTER_MAX_EXPERTS]; /* -INFINITY: cannot be chosen, except where nothing else is left */
    bool taken[ROUTER_MAX_EXPERTS];
};

static float largest(const float *x, int32_t count)
{
    float most = -INFINITY;
    for (int32_t i = 0; i < count; i++) most = x[i] > most ? x[i] : most;
    return most;
}

static void softmax(float *x, int32_t count)
{
    const float most = largest(x, count);
    float sum = 0;
    for (int32_t i = 0; i < count; i++) sum += x[i] = expf(x[i] - most);
    for (int32_t i = 0; i < count; i++) x[i] /= sum;
}

static void compute_scores(const struct route_experts_args *args, const float *logits, struct scores *s)
{
    const struct router_params *router = &args->router;
    const int32_t n = router->num_experts;
    const float cap = router->soft_cap;
    for (int32_t e = 0; e < n; e++) s->score[e] = cap > 0 ? cap * tanhf(logits[e] / cap) : logits[e];
    memcpy(s->choice, s->score, (size_t)n * sizeof *s->choice);
    if (router->kind == ROUTER_SOFTMAX) softmax(s->score, n);
    for (int32_t e = 0; e < n && router->kind == ROUTER_SIGMOID; e++) s->score[e] = 1 / (1 + expf(-s->score[e]));
    if (!router->by_logits) memcpy(s->choice, s->score, (size_t)n * sizeof *s->choice);
    for (int32_t e = 0; e < n; e++) {
        const float choice = s->choice[e] + (args->choice_bias ? args->choice_bias[e] : 0);
        s->choice[e] = isnan(choice) ? -INFINITY : choice;
        s->taken[e] = false;
    }
}

/* Takes the index of the largest; of equal ones, the lowest that is not taken. */
static int32_t take_largest(const float *x, bool *taken, int32_t count)
{
    int32_t best = -1;
    for (int32_t i = 0; i < count; i++)
        if (!taken[i] && (best < 0 || x[i] > x[best])) best = i;
    taken[best] = true;
    return best;
}

static float group_value(const float *choice, int32_t count, bool sum)
{
    float first = -INFINITY, second = -INFINITY;
    for (int32_t i = 0; i < count; i++) {
        second = fmaxf(second, fminf(first, choice[i]));
        first = fmaxf(first, choice[i]);
    }
    return sum && count > 1 ? first + second : first;
}

/* Leaves only the experts of the best groups. */
static void choose_groups(const struct router_params *router, struct scores *s)
{
    float values[ROUTER_MAX_EXPERTS];
    const int32_t groups = router->num_groups, size = router->num_experts / groups;
    for (int32_t g = 0; g < groups; g++) values[g] = group_value(s->choice + g * size, size, router->group_sums);
    for (int32_t i = 0; i < router->top_groups; i++) take_largest(values, s->taken, groups);
    for (int32_t g = groups - 1; g >= 0; g--) {
        const bool stays = s->taken[g];
        s->taken[g] = false;
        for (int32_t e = g * size; e < (g + 1) * size && !stays; e++) s->choice[e] = -INFINITY;
    }
}

/* The share of `expert` in a softmax over the experts that remain and are close to it. */
static float sparsemixer_weight(const struct router_params *router, const struct scores *s, int32_t expert)
{
    const float most = s->score[expert];
    float sum = 0;
    for (int32_t e = 0; e < router->num_experts; e++) {
        const float score = s->score[e], distance = (most - score) / fmaxf(fabsf(score), most);
        const bool remains = !s->taken[e] || e == expert;
        if (remains && !(distance > 2 * router->jitter)) sum += expf(score - most);
    }
    return 1 / sum;
}

/* Writes a token's experts, ascending, and their weights. */
static void choose_experts(const struct route_experts_args *args, struct scores *s, int32_t *experts, float *weights)
{
    const struct router_params *router = &args->router;
    const bool has_groups = router->num_groups > 1, mixes = router->kind == ROUTER_SPARSEMIXER;
    if (has_groups) choose_groups(router, s);
    float sum = 0;
    for (int32_t k = 0; k < router->top_k; k++) {
        const int32_t expert = take_largest(s->choice, s->taken, router->num_experts);
        const float weight = mixes ? sparsemixer_weight(router, s, expert) : s->score[expert];
        int32_t place = k;
        for (; place > 0 && experts[place - 1] > expert; place--) {
            experts[place] = experts[place - 1];
            weights[place] = weights[place - 1];
        }
        experts[place] = expert, weights[place] = weight;
        sum += weight;
    }
    for (int32_t k = 0; k < router->top_k; k++) {
        if (router->normalize) weights[k] /= sum + ROUTER_SMALLEST_SUM;
        weights[k] *= router->scaling * (args->expert_scales ? args->expert_scales[experts[k]] : 1);
    }
}

static void route_token(const struct cpu_state *state, const void *route_args, int64_t t, int thread)
{
    (void)state, (void)thread;
    const struct route_experts_args *args = route_args;
    const int32_t n = args->router.num_experts, k = args->router.top_k;
    const float *logits = args->logits + t * router_row(args);
    float *weights = args->plan.weights + t * k;
    struct scores s;
    compute_scores(args, logits, &s);
    choose_experts(args, &s, args->plan.rows + t * k, weights);
    bool is_damaged = false;
    for (int32_t e = 0; e < n; e++) is_damaged |= isnan(s.score[e]);
    for (int32_t i = 0; i < k && is_damaged; i++) weights[i] = NAN;
    if (args->base_gate) args->base_gate[t] = 1 / (1 + expf(-logits[n]));
}

/* A counting sort of the assignments, whose experts are in plan->rows, where their rows replace them. */
static void sort_assignments(const struct expert_plan *plan, const struct router_params *router, int32_t num_tokens)
{
    const int32_t top_k = router->top_k, num_own = router_num_own(router), first = router->first_own;
    const int64_t count = (int64_t)num_tokens * top_k;
    int32_t next[ROUTER_MAX_EXPERTS] = {0}; /* by expert */
    for (int64_t i = 0; i < count; i++) next[plan->rows[i]]++;
    int32_t start = 0;
    for (int32_t e = 0; e < num_own; e++) {
        const int32_t rows = next[first + e];
        plan->starts[e] = next[first + e] = start;
        start += rows;
    }
    plan->starts[num_own] = start;
    for (int64_t i = 0; i < count; i++) {
        const int32_t expert = plan->rows[i];
        const bool is_own = expert >= first && expert < first + num_own;
        const int32_t row = plan->rows[i] = is_own ? next[expert]++ : -1;
        if (is_own) plan->tokens[row] = (int32_t)(i / top_k);
    }
    for (int64_t row = start; row < count; row++) plan->tokens[row] = -1;
}

void cpu_route_experts(struct backend *b, const struct route_experts_args *args)
{
    const struct router_params *router = &args->router;
    cpu_for(cpu_state(b), (int64_t)args->num_tokens * router->num_experts * (8 + router->top_k), args->num_tokens,
            route_token, args);
    sort_assignments(&args->plan, router, args->num_tokens);
}
