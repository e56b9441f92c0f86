/* Conversion to the element types of the KV cache. */
#ifndef QUIRE_KERNELS_CUDA_CACHE_CUH
#define QUIRE_KERNELS_CUDA_CACHE_CUH

#include <cuda_fp8.h>

#include <type_traits>

#include "kernels/cuda/state.cuh"

/* An fp8 cache stores value / scale. What exceeds the largest fp8 number becomes that number; NaN stays NaN. */
template <class C> static __device__ __forceinline__ C to_cache(float x, float inverse_scale)
{
    return from_float<C>(x * inverse_scale);
}
template <> __device__ __forceinline__ __nv_fp8_e4m3 to_cache<__nv_fp8_e4m3>(float x, float inverse_scale)
{
    __nv_fp8_e4m3 out;
    out.__x = __nv_cvt_float_to_fp8(x * inverse_scale, __NV_SATFINITE, __NV_E4M3);
    return out;
}
template <> __device__ __forceinline__ __nv_fp8_e5m2 to_cache<__nv_fp8_e5m2>(float x, float inverse_scale)
{
    __nv_fp8_e5m2 out;
    out.__x = __nv_cvt_float_to_fp8(x * inverse_scale, __NV_SATFINITE, __NV_E5M2);
    return out;
}

template <class T, class C> static __device__ __forceinline__ C convert_for_cache(T x, float inverse_scale)
{
    if constexpr (std::is_same_v<T, C>)
        return x; /* bit for bit */
    else
        return to_cache<C>(to_float(x), inverse_scale);
}

/* in[0 .. X) as elements of the cache. `aligned`: 16 bytes can be read at a time. */
template <class T, class C, int X>
static __device__ __forceinline__ piece<C, X> load_item(const T *in, bool aligned, float inverse_scale)
{
    constexpr int N = 16 / sizeof(T) < X ? 16 / sizeof(T) : X;
    piece<C, X> out;
#pragma unroll
    for (int i = 0; i < X; i += N) {
        piece<T, N> part;
        if (aligned) {
            part = *(const piece<T, N> *)(in + i);
        } else {
#pragma unroll
            for (int j = 0; j < N; j++) part.values[j] = in[i + j];
        }
#pragma unroll
        for (int j = 0; j < N; j++) out.values[i + j] = convert_for_cache<T, C>(part.values[j], inverse_scale);
    }
    return out;
}

#endif
