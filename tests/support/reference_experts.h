/* A mixture of experts in float64, from the formulas of kernels/backend.h. */
#ifndef QUIRE_TESTS_SUPPORT_REFERENCE_EXPERTS_H
#define QUIRE_TESTS_SUPPORT_REFERENCE_EXPERTS_H

#include <stdbool.h>

#include "kernels/backend.h"

/* A token's experts, ascending, and their weights: [top_k]. choice_bias and expert_scales may be NULL. Returns whether
 * a decision was closer than rounding errors, and no tie: a backend may decide otherwise. */
bool reference_route(int32_t *experts, double *weights, const double *logits, const double *choice_bias,
                     const double *expert_scales, const struct router_params *router);

/* The plan of such choices: experts [num_tokens, top_k]; starts, tokens and rows as in struct expert_plan. */
void reference_plan(int32_t *starts, int32_t *tokens, int32_t *rows, const int32_t *experts, int32_t num_tokens,
                    const struct router_params *router);

/* Without gates, of up alone. */
double reference_gate(double gate, double up, const struct gate_params *params);

#endif
