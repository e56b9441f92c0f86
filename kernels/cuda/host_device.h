/* Small functions that host code, device code and C sources, which know nothing of CUDA, have in common. */
#ifndef QUIRE_KERNELS_CUDA_HOST_DEVICE_H
#define QUIRE_KERNELS_CUDA_HOST_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

/* What a function is declared as that device code calls too. */
#ifdef __CUDACC__
#define CUDA_HOST_DEVICE static constexpr __host__ __device__
#else
#define CUDA_HOST_DEVICE static inline
#endif

CUDA_HOST_DEVICE int64_t cuda_div_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static inline bool cuda_is_aligned(const void *data)
{
    return ((uintptr_t)data & 15) == 0;
}

#endif
