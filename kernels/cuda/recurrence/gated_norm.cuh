/* What a gated norm does to an element. */
#ifndef QUIRE_KERNELS_CUDA_RECURRENCE_GATED_NORM_CUH
#define QUIRE_KERNELS_CUDA_RECURRENCE_GATED_NORM_CUH

#include "kernels/cuda/recurrence/batch.cuh"

template <class T> static __device__ __forceinline__ float gate_factor(bool is_sigmoid, float gate)
{
    const float sigmoid = 1 / (1 + exponential<T>(-gate));
    return is_sigmoid ? sigmoid : gate * sigmoid;
}

#endif
