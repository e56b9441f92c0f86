/* Gains of norms, whose type is a run-time value: a branch that a whole grid takes alike costs nothing here. */
#ifndef QUIRE_KERNELS_CUDA_GAINS_CUH
#define QUIRE_KERNELS_CUDA_GAINS_CUH

#include "kernels/cuda/state.cuh"

/* The bits of N gains of 16 bits. */
template <int N>
using half_gains = std::conditional_t<N == 8, uint4, std::conditional_t<N == 4, uint2, unsigned short>>;

/* N gains in their own type. They are converted where they are used, so that nothing waits for them before. */
template <int N> union raw_gains {
    piece<float, N> floats;
    piece<__half, N> halves;
    piece<__nv_bfloat16, N> bfloats;
    half_gains<N> parts[2]; /* float32 gains take both, the others the first */
};

/* Gains N * i .. N * i + N - 1. The first part is loaded whatever the type is: two loads into the same registers, of
 * which the type picks one, would wait for each other. */
template <int N> static __device__ __forceinline__ raw_gains<N> load_gains(const void *gain, enum dtype dtype, int i)
{
    const bool wide = dtype == DTYPE_FLOAT32;
    const half_gains<N> *from = (const half_gains<N> *)gain + (wide ? 2 * i : i);
    raw_gains<N> raw;
    raw.parts[0] = from[0];
    if (wide) raw.parts[1] = from[1];
    return raw;
}

template <int N>
static __device__ __forceinline__ void convert_gains(float (&out)[N], const raw_gains<N> &raw, enum dtype dtype)
{
    if (dtype == DTYPE_FLOAT32) {
#pragma unroll
        for (int j = 0; j < N; j++) out[j] = raw.floats.values[j];
    } else if (dtype == DTYPE_FLOAT16) {
#pragma unroll
        for (int j = 0; j < N; j++) out[j] = to_float(raw.halves.values[j]);
    } else {
#pragma unroll
        for (int j = 0; j < N; j++) out[j] = to_float(raw.bfloats.values[j]);
    }
}

/* x = x * factor * gains, rounded to T: the last step of every norm. */
template <class T, int N>
static __device__ __forceinline__ void apply_gains(piece<T, N> &x, float factor, const raw_gains<N> &raw,
                                                   enum dtype gain_dtype)
{
    float gains[N];
    convert_gains<N>(gains, raw, gain_dtype);
#pragma unroll
    for (int j = 0; j < N; j++) x.values[j] = from_float<T>(to_float(x.values[j]) * factor * gains[j]);
}

/* Whether load_gains<N> can read them, and the biases. */
template <int N> static inline bool gains_are_aligned(const struct norm_params *norm)
{
    return (uintptr_t)norm->gain % (N * dtype_size(norm->gain_dtype)) == 0 &&
           (uintptr_t)norm->bias % (N * dtype_size(norm->bias_dtype)) == 0;
}

#endif
