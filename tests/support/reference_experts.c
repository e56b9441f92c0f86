#include "tests/support/reference_experts.h"

#include <math.h>
#include <stdlib.h>

#include "tests/support/reference.h"

struct place {
    double value;
    int32_t index;
};

static int compare_places(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->value != y->value) return x->value > y->value ? -1 : 1;
    return x->index - y->index;
}

/* The indices of values [count], from the largest to the smallest. */
static void sort_places(struct place *places, const double *values, int32_t count)
{
    for (int32_t i = 0; i < count; i++) places[i] = (struct place){values[i], i};
    qsort(places, (size_t)count, sizeof *places, compare_places);
}

static bool is_close(double a, double b)
{
    return a != b && fabs(a - b) < 1e-5;
}

static void scores_of(double *scores, const double *logits, const struct router_params *router)
{
    double most = -INFINITY, sum = 0;
    for (int32_t e = 0; e < router->num_experts; e++) {
        scores[e] = router->soft_cap > 0 ? router->soft_cap * tanh(logits[e] / router->soft_cap) : logits[e];
        most = fmax(most, scores[e]);
    }
    for (int32_t e = 0; e < router->num_experts; e++) {
        if (router->kind == ROUTER_SIGMOID) scores[e] = 1 / (1 + exp(-scores[e]));
        if (router->kind == ROUTER_SOFTMAX) sum += scores[e] = exp(scores[e] - most);
    }
    for (int32_t e = 0; e < router->num_experts && router->kind == ROUTER_SOFTMAX; e++) scores[e] /= sum;
}

static bool keep_groups(double *choice, const struct router_params *router)
{
    struct place places[ROUTER_MAX_EXPERTS];
    double values[ROUTER_MAX_EXPERTS];
    const int32_t size = router->num_experts / router->num_groups;
    for (int32_t g = 0; g < router->num_groups; g++) {
        sort_places(places, choice + g * size, size);
        values[g] = places[0].value + (router->group_sums && size > 1 ? places[1].value : 0);
    }
    sort_places(places, values, router->num_groups);
    for (int32_t i = router->top_groups; i < router->num_groups; i++)
        for (int32_t e = 0; e < size; e++) choice[places[i].index * size + e] = -INFINITY;
    return router->top_groups < router->num_groups &&
           is_close(places[router->top_groups - 1].value, places[router->top_groups].value);
}

/* The share of `expert` in the softmax over the experts close to it, without `other`. */
static double sparsemixer_share(const double *logits, int32_t expert, int32_t other, const struct router_params *router,
                                bool *close)
{
    double sum = 0;
    for (int32_t e = 0; e < router->num_experts; e++) {
        const double distance = logits[expert] - logits[e];
        const double limit = 2 * (double)router->jitter * fmax(fabs(logits[e]), logits[expert]);
        *close |= is_close(distance, limit);
        if (e != other && distance <= limit) sum += exp(-distance);
    }
    return 1 / sum;
}

bool reference_route(int32_t *experts, double *weights, const double *logits, const double *choice_bias,
                     const double *expert_scales, const struct router_params *router)
{
    double scores[ROUTER_MAX_EXPERTS], choice[ROUTER_MAX_EXPERTS], sum = 0;
    struct place places[ROUTER_MAX_EXPERTS];
    scores_of(scores, logits, router);
    for (int32_t e = 0; e < router->num_experts; e++)
        choice[e] = (router->by_logits ? logits[e] : scores[e]) + (choice_bias ? choice_bias[e] : 0);
    bool close = router->num_groups > 1 && keep_groups(choice, router);
    sort_places(places, choice, router->num_experts);
    if (router->top_k < router->num_experts)
        close |= is_close(places[router->top_k - 1].value, places[router->top_k].value);
    const int32_t first = places[0].index;
    bool taken[ROUTER_MAX_EXPERTS] = {false};
    for (int32_t k = 0; k < router->top_k; k++) {
        taken[places[k].index] = true;
        sum += scores[places[k].index];
    }
    for (int32_t e = 0, k = 0; e < router->num_experts; e++) {
        if (!taken[e]) continue;
        double weight = router->normalize ? scores[e] / sum : scores[e];
        if (router->kind == ROUTER_SPARSEMIXER)
            weight = sparsemixer_share(scores, e, e == first ? -1 : first, router, &close);
        experts[k] = e;
        weights[k++] = weight * (double)router->scaling * (expert_scales ? expert_scales[e] : 1);
    }
    return close;
}

void reference_plan(int32_t *starts, int32_t *tokens, int32_t *rows, const int32_t *experts, int32_t num_tokens,
                    const struct router_params *router)
{
    const int32_t count = num_tokens * router->top_k, num_own = router_num_own(router);
    int32_t row = 0;
    for (int32_t i = 0; i < count; i++) tokens[i] = rows[i] = -1;
    for (int32_t e = 0; e < num_own; e++) {
        starts[e] = row;
        for (int32_t i = 0; i < count; i++) {
            if (experts[i] != router->first_own + e) continue;
            tokens[row] = i / router->top_k;
            rows[i] = row++;
        }
    }
    starts[num_own] = row;
}

double reference_gate(double gate, double up, const struct gate_params *params)
{
    const double pair[2] = {gate, up};
    double out;
    if (params->kind == GATE_NONE) return reference_activate(up, params->activation, NULL);
    if (params->kind == GATE_MULTIPLY) {
        reference_act_and_mul(&out, pair, 1, 1, params->activation, (double)params->limit);
        return out;
    }
    if (params->limit > 0) {
        gate = fmin(gate, (double)params->limit);
        up = fmax(fmin(up, (double)params->limit), -(double)params->limit);
    }
    return (up + 1) * gate / (1 + exp(-1.702 * gate));
}
