/* A matmul as the kernels of few_tokens.cu and linear_wgmma.cu compute it: what linear and the fused operations
 * have in common. */
#ifndef QUIRE_KERNELS_CUDA_MATMUL_MATMUL_CUH
#define QUIRE_KERNELS_CUDA_MATMUL_MATMUL_CUH

#include "kernels/cuda/activation.cuh"

enum matmul_result {
    MATMUL_STORE, /* out = y */
    MATMUL_ADD,   /* out += y; y is rounded to dtype before the addition, the sum after it */
    MATMUL_GATE   /* out[t][i] = activation(y[t][i]) * y[t][out_features / 2 + i], both y rounded to dtype before */
};

/* y[t][o] = sum over i of z[t][i] * weight[o][i], + bias[o], where z is x, or rms_norm(x) if there is a gain. */
struct matmul {
    const void *weight; /* [out_features, in_features] dtype, or quantized */
    const void *bias;   /* [out_features] dtype, or NULL */
    int64_t out_features, in_features;
    const void *x; /* [num_tokens, in_features] dtype */
    int64_t x_stride;
    int32_t num_tokens;
    enum dtype dtype; /* float16 or bfloat16 */
    const void *gain; /* [in_features], or NULL */
    bool gain_is_float;
    float eps;
    void *out;
    int64_t out_stride;
    bool out_is_float; /* out is float32, otherwise dtype; only for MATMUL_STORE */
    enum matmul_result result;
    enum activation activation; /* of MATMUL_GATE */
    /* As in struct weight; only FP8, INT8 and INT4 are quantized. */
    enum weight_format format;
    const void *scales;
    enum dtype scale_dtype;
    int64_t scale_rows, group_size;
    const uint8_t *zeros;
    const int32_t *input_order; /* linear_decoding alone takes one */
};

static inline bool matmul_is_quantized(const struct matmul *m)
{
    return m->format >= WEIGHT_FP8;
}

/* The matmul of an operation's arguments, without a norm. False: the types differ, so none of these kernels takes it.
 */
static inline bool matmul_of(const struct linear_args *args, enum matmul_result result, struct matmul *out)
{
    const struct weight *w = args->weight;
    const bool is_float = args->out_dtype == DTYPE_FLOAT32, takes_float = result == MATMUL_STORE;
    *out = {};
    out->weight = w->data;
    out->bias = w->bias;
    out->out_features = w->out_features;
    out->in_features = w->in_features;
    out->x = args->x;
    out->x_stride = args->x_stride;
    out->num_tokens = args->num_tokens;
    out->dtype = args->dtype;
    out->out = args->out;
    out->out_stride = args->out_stride;
    out->out_is_float = is_float;
    out->result = result;
    out->format = w->format;
    out->scales = w->scales;
    out->scale_dtype = w->scale_dtype;
    out->scale_rows = w->scale_rows;
    out->group_size = w->group_size;
    out->zeros = w->zeros;
    out->input_order = w->input_order;
    return (weight_is_quantized(w) || weight_dtype(w) == args->dtype) && (!w->bias || w->bias_dtype == args->dtype) &&
           (args->dtype == DTYPE_FLOAT16 || args->dtype == DTYPE_BFLOAT16) &&
           (args->out_dtype == args->dtype || (is_float && takes_float));
}

/* An element of MATMUL_GATE. */
template <class T>
static __device__ __forceinline__ float gate_times_up(enum activation activation, float gate, float up)
{
    return activate<T>(activation, to_float(from_float<T>(gate))) * to_float(from_float<T>(up));
}

/* The first `count` of four output features of a token as they are in out; as_one: all four in one access. */
template <class Out> static __device__ __forceinline__ piece<Out, 4> load_four(const Out *from, bool as_one, int count)
{
    piece<Out, 4> x = {};
    if (as_one) return *(const piece<Out, 4> *)from;
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (i < count) x.values[i] = from[i];
    return x;
}

/* Stores them, added to `before` if `add`. */
template <class Out>
static __device__ __forceinline__ void store_four(Out *to, float4 y, const float (&bias)[4], bool as_one, int count,
                                                  const piece<Out, 4> &before, bool add)
{
    piece<Out, 4> out = {from_float<Out>(y.x + bias[0]), from_float<Out>(y.y + bias[1]), from_float<Out>(y.z + bias[2]),
                         from_float<Out>(y.w + bias[3])};
    if (add)
#pragma unroll
        for (int i = 0; i < 4; i++)
            out.values[i] = from_float<Out>(to_float(before.values[i]) + to_float(out.values[i]));
    if (as_one) {
        *(piece<Out, 4> *)to = out;
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (i < count) to[i] = out.values[i];
}

/* The biases of `count` of four output features; 0 for the others and where there is no bias. */
template <class T>
static __device__ __forceinline__ void load_biases(float (&out)[4], const matmul &m, int feature, int count)
{
#pragma unroll
    for (int i = 0; i < 4; i++) out[i] = m.bias && i < count ? to_float(((const T *)m.bias)[feature + i]) : 0.0f;
}

#endif
