/* SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014): a counter and a
 * function that mixes it. The same numbers everywhere for the same seed; not for cryptography. Tokens are drawn with
 * another generator, Philox (kernels/philox.h). */
#ifndef QUIRE_BASE_RANDOM_H
#define QUIRE_BASE_RANDOM_H

#include <stdint.h>

/* What a function is declared as that device code calls too. */
#ifdef __CUDACC__
#define RANDOM_FUNCTION __host__ __device__ static inline
#else
#define RANDOM_FUNCTION static inline
#endif

#define RANDOM_STEP 0x9E3779B97F4A7C15u /* 2^64 / golden ratio, odd */

/* Initialise the state with the seed. */
struct random {
    uint64_t state;
};

/* Every bit of x reaches every bit of the result. */
RANDOM_FUNCTION uint64_t random_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static inline uint64_t random_bits(struct random *r)
{
    r->state += RANDOM_STEP;
    return random_mix(r->state);
}

/* [0, 1), a multiple of 2^-53. */
static inline double random_uniform(struct random *r)
{
    return (double)(random_bits(r) >> 11) / 9007199254740992.0;
}

/* A number from low to high, both included. (Not exactly uniform, by less than (high - low) / 2^64.) */
static inline int64_t random_between(struct random *r, int64_t low, int64_t high)
{
    return low + (int64_t)(random_bits(r) % (uint64_t)(high - low + 1));
}

#endif
