/* The operations of recurrent layers, which keep a state of fixed size of a sequence: short convolutions, linear
 * recurrences, and the gated norm of what these compute. A part of backend.h.
 *
 * A state lies in a state slot (base/batch.h). A layer's states are one array, slot after slot, of float32; the null
 * slot is never written, and what is read from it is zero, whatever it holds. */
#ifndef QUIRE_KERNELS_RECURRENCE_H
#define QUIRE_KERNELS_RECURRENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "kernels/dtype.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The states of a layer, and what the batch's entries do with them: entry i computes the tokens query_start[i] ..
 * query_start[i + 1] - 1, from the state in slot sources[i] on, and writes the state after them to slot slots[i]. All
 * arrays are on the device. An entry with STATE_CONTINUES goes on from the state after the entry before it; chains have
 * up to 1 + MAX_DRAFTS entries, and only the first num_decodes entries, which have one token each, or none, are in
 * chains. */
struct state_batch {
    const int32_t *query_start;     /* [num_seqs + 1] */
    const int32_t *sources, *slots; /* [num_seqs] */
    int32_t num_seqs, num_decodes, num_tokens;
    int32_t max_query_len; /* a bound, for choosing a kernel and a grid */
    int32_t max_run_len;   /* the same, of chains; 1: there are none */
};

/* A causal convolution of each channel over its last `width` tokens (Gu and Dao, 2023; LFM2: Liquid AI, 2025):
 *
 *     y[t][c] = activation(bias[c] + sum over j < width of weight[c][j] * u[t - width + 1 + j][c])
 *     u = x, or input_gate * x;  out = y, or output_gate * y
 *
 * Where the sequence has no token, u is 0. Its state is u of the last width - 1 tokens, the oldest first, [channels,
 * width - 1]. u is rounded to dtype, sums are float32. */
struct short_conv_args {
    void *out;                            /* [num_tokens, channels] dtype; overlaps no input */
    const void *x;                        /* [num_tokens, channels] dtype */
    const void *input_gate, *output_gate; /* [num_tokens, channels] dtype; NULL: none */
    int64_t x_stride;                     /* of x and the gates, from token to token */
    const float *weight;                  /* [channels, width] */
    const float *bias;                    /* [channels]; NULL: 0 */
    bool silu;                            /* the activation; false: none */
    int32_t channels, width;
    float *states; /* [slots, state_stride] */
    int64_t state_stride;
    struct state_batch batch;
    enum dtype dtype;
};

/* Recurrences. Each head of v has a state S [v_size, k_size], and q and k of head h are those of head h / (num_v_heads
 * / num_k_heads). For each token, with the numbers `decay` and `beta` of the token and the head,
 *
 *     S = decay * S
 *     DELTA:   S += beta * (v - S k) k^T         (gated delta rule: Yang et al., 2024)
 *     others:  S += beta * v k^T
 *     out = S (scale * q) + skip * v
 *
 *     DELTA             decay = exp(-exp(a_log) * softplus(a + dt_bias)), beta = beta_factor * sigmoid(b)
 *     DELTA_CHANNELS    the same with a decay for each element of k, which multiplies a column of S (Kimi Team, 2025)
 *     SSD               beta = min(max(softplus(a + dt_bias), beta_min), beta_max), decay = exp(-exp(a_log) * beta)
 *                       (Mamba 2: Dao and Gu, 2024. v is its x, k its B, q its C, and beta its time step)
 *     FIXED             decay = exp(-a_log), beta = 1 (lightning attention: Qin et al., 2024)
 *
 * With norm_qk, q and k of a head are divided by sqrt(sum of squares + 1e-6) first. All is computed in float32; out is
 * rounded to dtype. */
enum recurrence_kind { RECURRENCE_DELTA, RECURRENCE_DELTA_CHANNELS, RECURRENCE_SSD, RECURRENCE_FIXED };

struct recurrence_params {
    enum recurrence_kind kind;
    int32_t num_k_heads, num_v_heads; /* num_k_heads divides num_v_heads */
    int32_t k_size, v_size;           /* of a head: multiples of 16, at most 256 */
    const float *a_log;               /* [num_v_heads] on the device */
    const float *dt_bias; /* [num_v_heads], DELTA_CHANNELS [num_v_heads, k_size]; on the device; not of FIXED */
    const float *skip;    /* [num_v_heads] on the device; NULL: 0 */
    float scale;
    float beta_factor, beta_min, beta_max;
    bool norm_qk;
};

struct recurrence_args {
    void *out;             /* [num_tokens, num_v_heads, v_size] dtype */
    const void *q, *k, *v; /* [num_tokens, num_k_heads, k_size] twice, and [num_tokens, num_v_heads, v_size]; dtype */
    const void *a, *b;     /* [num_tokens, num_v_heads], of DELTA_CHANNELS a [num_tokens, num_v_heads, k_size]; dtype; a
                              not of FIXED, b of DELTA and DELTA_CHANNELS */
    int64_t qkv_stride;    /* of q, k and v, from token to token */
    int64_t a_stride, b_stride;
    float *states; /* [slots, state_stride], of a slot [num_v_heads, v_size, k_size] */
    int64_t state_stride;
    struct state_batch batch;
    const struct recurrence_params *params; /* host */
    enum dtype dtype;
};

/* out = norm(x) * f(gate), or with gate_first norm(x * f(gate)), where each group of group_size elements is an RMSNorm
 * of its own, and f is silu or, with `sigmoid`, the sigmoid. Without a gain there is no norm. Numbers are float32
 * between reading and writing, but for the norm, which is rounded to dtype before the gate where round_norm says so. */
struct gated_norm_args {
    void *out;        /* [num_tokens, size] dtype; may be x */
    const void *x;    /* [num_tokens, size] dtype */
    const void *gate; /* [num_tokens, size] dtype, of which tokens are gate_stride elements apart */
    int64_t gate_stride;
    const void *gain; /* [gain_size] gain_dtype, which repeats: gain_size is size or group_size; NULL: no norm */
    enum dtype gain_dtype;
    int32_t gain_size, group_size;
    float eps;
    bool gate_first, sigmoid, round_norm;
    int32_t num_tokens, size;
    enum dtype dtype;
};

struct backend;
typedef void short_conv_function(struct backend *b, const struct short_conv_args *args);
typedef void recurrence_function(struct backend *b, const struct recurrence_args *args);
typedef void gated_norm_function(struct backend *b, const struct gated_norm_args *args);
/* short_conv, recurrence and gated_norm of a batch that has only decodes, in fewer kernels: recurrence->q, k and v are
 * the channels of conv->out, norm->x is recurrence->out, and what these hold afterwards is not said, unless norm->out
 * is the same. With norm->num_tokens 0, and groups that are no heads, the norm is left out. An optional operation, as
 * those of struct backend. */
struct decode_recurrence_args {
    struct short_conv_args conv;
    struct recurrence_args recurrence;
    struct gated_norm_args norm;
};
typedef bool decode_recurrence_function(struct backend *b, const struct decode_recurrence_args *args);

#ifdef __cplusplus
}
#endif

#endif
