/* What kernels do with the sums of a matmul: the bias, the gate, the addition and the rounding. */
#ifndef QUIRE_KERNELS_CUDA_MATMUL_MATMUL_CUH
#define QUIRE_KERNELS_CUDA_MATMUL_MATMUL_CUH

#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/matmul/matmul.h"

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
