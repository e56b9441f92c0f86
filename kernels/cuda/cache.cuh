/* Conversion to the element types of the KV cache. */
#ifndef QUIRE_KERNELS_CUDA_CACHE_CUH
#define QUIRE_KERNELS_CUDA_CACHE_CUH

#include <cuda_fp8.h>

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

#endif
