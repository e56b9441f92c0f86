/* What the files of latent attention share: generic.cu computes what attention.cu and
 * attention_wgmma.cu, on tensor cores, do not take. */
#ifndef QUIRE_KERNELS_CUDA_LATENT_LATENT_CUH
#define QUIRE_KERNELS_CUDA_LATENT_LATENT_CUH

#include <cuda_fp8.h>

#include "kernels/cuda/state.cuh"

/* generic.cu: any call. */
void cuda_latent_generic(struct backend *b, const struct latent_attention_args *args);

/* The scale of the cache: real value = stored value * scale. */
static __device__ __forceinline__ float latent_scale_load(const struct latent_attention_args &args)
{
    const bool fp8 = args.cache_dtype == DTYPE_FP8_E4M3 || args.cache_dtype == DTYPE_FP8_E5M2;
    return fp8 ? args.kv_scales[0] : 1;
}

#endif
