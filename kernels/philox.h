/* Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): a counter-based generator:
 * a random number is a function of seed, sequence index, output position and token id alone. Plain C that nvcc compiles
 * too, so that every backend draws the same numbers. */
#ifndef QUIRE_KERNELS_PHILOX_H
#define QUIRE_KERNELS_PHILOX_H

#include <stdint.h>

#ifdef __CUDACC__
#define PHILOX_FUNCTION __host__ __device__ static inline
#else
#define PHILOX_FUNCTION static inline
#endif

/* out[4] = Philox4x32-10(counter = {block, position, sequence, 0}, key = seed). */
PHILOX_FUNCTION void philox4x32(uint64_t seed, uint32_t sequence, uint32_t position, uint32_t block, uint32_t out[4])
{
    uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
    uint32_t c0 = block, c1 = position, c2 = sequence, c3 = 0;
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xD2511F53u * c0, b = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ key0;
        c1 = (uint32_t)b;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ key1;
        c3 = (uint32_t)a;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* A float in (0, 1): 23 bits, never 0 and never 1. */
PHILOX_FUNCTION float philox_uniform(uint32_t bits)
{
    return ((float)(bits >> 9) + 0.5f) * (1.0f / 8388608.0f);
}

#endif
