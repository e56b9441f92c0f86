/* The gates of gated MLPs (SwiGLU and GeGLU: Shazeer, "GLU variants improve transformer", 2020), and activations. */
#ifndef QUIRE_KERNELS_CUDA_ACTIVATION_CUH
#define QUIRE_KERNELS_CUDA_ACTIVATION_CUH

#include "kernels/cuda/state.cuh"

/* Two activations are x / (1 + exp(-z)): silu has z = x, and gelu_tanh, since (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u)),
 * has z = 2 sqrt(2 / pi) (x + 0.044715 x^3). This returns z. */
static __device__ __forceinline__ float activation_exponent(enum activation activation, float x)
{
    return activation == ACTIVATION_GELU_TANH ? 1.5957691216057308f * fmaf(0.044715f * x * x, x, x) : x;
}

/* gelu is x times the normal distribution's integral up to x. float32 results are computed exactly. For 16-bit results
 * the fast instructions are good enough: their relative error, about 1e-6, is far below the rounding. */
template <class T> static __device__ __forceinline__ float activate(enum activation activation, float x)
{
    if (activation == ACTIVATION_GELU) return x * normcdff(x);
    const float z = activation_exponent(activation, x);
    return sizeof(T) == 4 ? x / (1.0f + expf(-z)) : __fdividef(x, 1.0f + __expf(-z));
}

/* Of an MLP or of experts without gates: any but xielu. NaN stays. */
template <class T> static __device__ __forceinline__ float activate_plain(enum activation activation, float x)
{
    if (activation != ACTIVATION_RELU && activation != ACTIVATION_RELU2) return activate<T>(activation, x);
    const float positive = x < 0 ? 0 : x;
    return activation == ACTIVATION_RELU ? positive : positive * positive;
}

/* NaN stays. */
static __device__ __forceinline__ void limit_gate(float limit, float *g, float *u)
{
    *g = *g > limit ? limit : *g;
    *u = *u > limit ? limit : *u < -limit ? -limit : *u;
}

/* Of gates: whether they are more than activation(g) * u. */
static __host__ __device__ __forceinline__ bool gate_is_special(const struct gate_params &gate)
{
    return gate.kind != GATE_MULTIPLY || gate.limit > 0;
}

/* The gate of g and u. */
template <class T> static __device__ __forceinline__ float gate_value(const struct gate_params &gate, float g, float u)
{
    if (gate.kind == GATE_MULTIPLY) g = activate<T>(gate.activation, g);
    if (gate.limit > 0) limit_gate(gate.limit, &g, &u);
    if (gate.kind == GATE_SWIGLU_OAI) return (u + 1) * (g / (1 + __expf(-1.702f * g)));
    return g * u;
}

#endif
