/* The mathematics of kernels/backend.h in float64, written from the formulas and sharing no code with any backend: what
 * backends are compared with. Everything is row-major and contiguous. */
#ifndef QUIRE_TESTS_SUPPORT_REFERENCE_H
#define QUIRE_TESTS_SUPPORT_REFERENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/random.h"
#include "kernels/backend.h"

/* Element types, from their definitions. reference_encode gives the nearest value, ties to the even bit pattern, and
 * clamps to the largest finite one; not for NaN. */
double reference_decode(enum dtype dtype, uint32_t bits);
uint32_t reference_encode(enum dtype dtype, double value);

/* out[t][r] = sum over c of x[t][c] w[r][c] + bias[r]; bias may be NULL. */
void reference_linear(double *out, const double *x, const double *w, const double *bias, int64_t tokens, int64_t rows,
                      int64_t columns);
void reference_rms_norm(double *out, const double *x, const double *gain, double eps, int64_t tokens, int64_t size);
/* In place; x [tokens, heads, head_size], cos_sin [positions, rotary_dim]. */
void reference_rotary(double *x, const int32_t *positions, const double *cos_sin, int64_t tokens, int64_t heads,
                      int64_t head_size, int64_t rotary_dim);
void reference_act_and_mul(double *out, const double *gate_up, int64_t tokens, int64_t size,
                           enum activation activation);

/* One head of one query at `position` over keys and values [position + 1, stride] of one sequence. alibi_slope is this
 * head's, 0 for none. out [head_size]. */
void reference_attention(double *out, const double *query, const double *keys, const double *values, int64_t stride,
                         int32_t position, int32_t head, int32_t kv_head, int32_t head_size,
                         const struct attention_params *params, double alibi_slope);

/* What one slot samples from raw logits, in double, by sorting everything. */
struct reference_sample {
    int32_t token;
    bool close; /* a decision was closer than rounding: another backend may rightly decide otherwise */
    double logprob;
    int32_t rank;
    int32_t num_kept;      /* tokens that could be drawn */
    double *probabilities; /* [vocab_size] of each token in the draw; given by the caller, or NULL */
};
void reference_sample(struct reference_sample *out, const float *logits, int32_t vocab_size,
                      const struct sampling_state *row, const int32_t *history, int32_t output);

#endif
