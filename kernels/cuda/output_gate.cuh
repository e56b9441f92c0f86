/* What results of attention are multiplied by: output_gate and decode_attention compute the same. */
#ifndef QUIRE_KERNELS_CUDA_OUTPUT_GATE_CUH
#define QUIRE_KERNELS_CUDA_OUTPUT_GATE_CUH

#include "kernels/backend.h"

static __device__ __forceinline__ float output_gate_of(enum output_gate kind, float x)
{
    if (kind == OUTPUT_GATE_SIGMOID) return 1 / (1 + expf(-x));
    return x > 20 ? x : log1pf(expf(x));
}

#endif
