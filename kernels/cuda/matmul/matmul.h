/* A matmul as this backend's kernels compute it: what linear and the fused operations have in common. */
#ifndef QUIRE_KERNELS_CUDA_MATMUL_MATMUL_H
#define QUIRE_KERNELS_CUDA_MATMUL_MATMUL_H

#include "kernels/backend.h"
#include "kernels/cuda/host_device.h"

enum {
    INT4_SEGMENT = 128, /* input features of a row of INT4 that weight_prepare reorders among themselves (quantized.cuh)
                         */
    MXFP4_SEGMENT = 64, /* of MXFP4: the last of a row may be half of one */
    MATMUL_STEP = 128   /* input features of a quantized weight that a kernel for several tokens takes at a time */
};

enum matmul_result {
    MATMUL_STORE,   /* out = y */
    MATMUL_ADD,     /* out += y; y is rounded to dtype before the addition, the sum after it */
    MATMUL_GATE,    /* out[t][i] = gate(y[t][i], y[t][out_features / 2 + i]), both y rounded to dtype before */
    MATMUL_ACTIVATE /* out = the gate's activation of y, rounded to dtype before */
};

/* y[t][o] = sum over i of z[t][i] * weight[o][i], + bias[o], where z is x, or rms_norm(x) if there is a gain. */
struct matmul {
    const void *weight; /* [out_features, in_features] dtype, or quantized */
    const void *bias;   /* [out_features] dtype, or NULL */
    int64_t out_features, in_features;
    const void *x; /* [num_tokens, in_features] dtype, or quantized or split rows (MATMUL_ROWS_WGMMA) */
    int64_t x_stride;
    int32_t num_tokens;
    struct row_segments segments; /* if there are any, `weight` is the first of several */
    enum dtype dtype;             /* float16 or bfloat16 */
    const void *gain;             /* [in_features], or NULL */
    bool gain_is_float;
    float eps;
    void *out;
    int64_t out_stride;
    bool out_is_float; /* out is float32, otherwise dtype; only for MATMUL_STORE */
    enum matmul_result result;
    struct gate_params gate; /* of MATMUL_GATE and, GATE_NONE, of MATMUL_ACTIVATE */
    /* As in struct weight; only FP8, INT8, INT4 and MXFP4 are quantized. */
    enum weight_format format;
    const void *scales;
    enum dtype scale_dtype;
    int64_t scale_rows, group_size;
    const uint8_t *zeros;
    const float *x_scales;      /* of quantized or split rows: [num_tokens]; or behind them (SEGMENT_ROWS_BLOCKS) */
    const int32_t *input_order; /* kernels get the parts of such a matmul (MATMUL_IN_ORDER), which have none */
};

/* The rows of the weight, or of the weights of all segments. */
static inline int64_t matmul_weight_rows(const struct matmul *m)
{
    return m->out_features * (m->segments.count > 0 ? m->segments.count : 1);
}

/* The tokens that are multiplied by a weight: all of them, or those of a segment on the average, rounded up. */
static inline int32_t matmul_weight_tokens(const struct matmul *m)
{
    const int32_t count = m->segments.all > 0 ? m->segments.all : m->segments.count;
    return count > 0 ? m->num_tokens / count + (m->num_tokens % count > 0) : m->num_tokens;
}

/* The tokens that a tile should have: all of them, or as many as segments that differ by chance seldom exceed, which is
 * two deviations above their average. */
static inline int32_t matmul_tile_tokens(const struct matmul *m)
{
    const int32_t tokens = matmul_weight_tokens(m);
    int32_t deviation = 0;
    if (m->segments.count == 0) return tokens;
    while ((deviation + 1) * (deviation + 1) <= tokens && deviation < 64) deviation++;
    return tokens + 2 * deviation;
}

/* Whether rows of the operands, and gains, begin at multiples of 16 bytes. */
static inline bool matmul_is_aligned(const struct matmul *m)
{
    return cuda_is_aligned(m->weight) && cuda_is_aligned(m->x) && m->x_stride % 8 == 0 &&
           (!m->gain || cuda_is_aligned(m->gain));
}

static inline bool matmul_is_quantized(const struct matmul *m)
{
    return m->format >= WEIGHT_FP8;
}

#endif
