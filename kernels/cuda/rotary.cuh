/* Rotary position embedding (Su et al., RoFormer, 2021) of pairs in registers. */
#ifndef QUIRE_KERNELS_CUDA_ROTARY_CUH
#define QUIRE_KERNELS_CUDA_ROTARY_CUH

#include "kernels/cuda/state.cuh"

/* Turns the pairs (left[j], right[j]), each by its angle; to the same bits wherever it is done. */
template <class T, int N>
static __device__ __forceinline__ void rotate(piece<T, N> &left, piece<T, N> &right, const float *cos, const float *sin)
{
#pragma unroll
    for (int j = 0; j < N; j++) {
        const float l = to_float(left.values[j]), r = to_float(right.values[j]);
        left.values[j] = from_float<T>(fmaf(l, cos[j], -(r * sin[j])));
        right.values[j] = from_float<T>(fmaf(r, cos[j], l * sin[j]));
    }
}

#endif
