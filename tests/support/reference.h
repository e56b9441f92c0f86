/* The operations of kernels/backend.h in float64, written from their formulas without any code of a backend: backends
 * are compared with them. Everything is row-major and contiguous. */
#ifndef QUIRE_TESTS_SUPPORT_REFERENCE_H
#define QUIRE_TESTS_SUPPORT_REFERENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/pool.h"
#include "base/random.h"
#include "kernels/backend.h"

/* Element types, from their definitions. reference_encode gives the nearest value, ties to the even bit pattern, and
 * clamps to the largest finite one; not for NaN. */
double reference_decode(enum dtype dtype, uint32_t bits);
uint32_t reference_encode(enum dtype dtype, double value);

/* Calls body(context, i, thread) once for each i from 0 to count - 1, on all processors. */
void reference_for(int64_t count, pool_body *body, void *context);

/* out[t][o] = sum over i of x[t][i] w[o][i] + bias[o]; bias may be NULL. */
void reference_linear(double *out, const double *x, const double *w, const double *bias, int64_t num_tokens,
                      int64_t out_features, int64_t in_features);
void reference_rms_norm(double *out, const double *x, const double *gain, double eps, int64_t tokens, int64_t size);
/* bias may be NULL. */
void reference_layer_norm(double *out, const double *x, const double *gain, const double *bias, double eps,
                          int64_t tokens, int64_t size);
/* Rotates x in place: x [tokens, heads, head_size], cos_sin [positions, rotary_dim]. Pairs are (2 i, 2 i + 1) if
 * interleaved, else (i, i + rotary_dim / 2). */
void reference_rotary(double *x, const int32_t *positions, const double *cos_sin, int64_t tokens, int64_t heads,
                      int64_t head_size, int64_t rotary_dim, bool interleaved);
void reference_act_and_mul(double *out, const double *gate_up, int64_t tokens, int64_t size, enum activation activation,
                           double limit); /* 0: none */

double reference_activate(double x, enum activation activation, const struct xielu_params *params);

/* One head of one token. */
struct reference_query {
    const double *query;         /* [head_size] */
    const double *keys, *values; /* [position + 1, stride], and v_stride, of the sequence, from this KV head on */
    int64_t stride, v_stride;
    int32_t position, head, kv_head, head_size, v_head_size;
    const struct attention_params *params;
    double alibi_slope; /* of this head; 0: none */
    const double *sink; /* of this head; NULL: none */
};
void reference_attention(double *out, const struct reference_query *q); /* out [v_head_size] */

/* One sample from raw logits, in double, by sorting everything. */
struct reference_sample {
    int32_t token;
    bool close; /* a decision was closer than rounding errors: a backend may decide otherwise */
    double logprob;
    int32_t rank;
    int32_t num_kept;      /* tokens that could be drawn */
    double *probabilities; /* [vocab_size] of each token in the draw; given by the caller, or NULL */
};
void reference_sample(struct reference_sample *out, const float *logits, int32_t vocab_size,
                      const struct sampling_state *row, const int32_t *history, int32_t output);

#endif
