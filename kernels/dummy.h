/* What dummy weights are made of: numbers that follow from a seed and an index alone. Plain C that nvcc compiles too,
 * so that host and device make the same.
 *
 * Random number i of a seed makes floats 2 i and 2 i + 1, or bytes 8 i to 8 i + 7. A float stands for the sum of four
 * bytes: 0 to 1020, nearly normal. */
#ifndef QUIRE_KERNELS_DUMMY_H
#define QUIRE_KERNELS_DUMMY_H

#include <stdbool.h>

#include "base/random.h"

enum { DUMMY_VALUES = 4 * 255 + 1, DUMMY_LAST_BYTE = 0x35 /* each of those that are no eight */ };

#define DUMMY_DEVIATION 0.02f

RANDOM_FUNCTION uint64_t dummy_bits(uint64_t seed, int64_t i)
{
    return random_mix(seed + (uint64_t)i * RANDOM_STEP);
}

/* The sums of the four bytes of each half of x. */
RANDOM_FUNCTION void dummy_sums(uint64_t x, uint32_t *low, uint32_t *high)
{
    const uint64_t pairs = (x & 0x00ff00ff00ff00ffu) + ((x >> 8) & 0x00ff00ff00ff00ffu);
    const uint64_t sums = pairs + (pairs >> 16);
    *low = (uint32_t)(sums & 0xffff);
    *high = (uint32_t)((sums >> 32) & 0xffff);
}

/* The sum of the last float, if there is an odd number of them. */
RANDOM_FUNCTION uint32_t dummy_last_sum(uint64_t seed)
{
    return (uint32_t)(dummy_bits(seed, 0) % DUMMY_VALUES);
}

/* Four bytes, each uniform on 0..255: mean 510, variance 4 * (256^2 - 1) / 12 = 147.801^2. */
RANDOM_FUNCTION float dummy_float(uint32_t sum)
{
    return (float)((int32_t)sum - 510) * (DUMMY_DEVIATION / 147.801f);
}

/* x; as bytes of FP8, of which none is a NaN of e4m3: that has all bits but the sign set. */
RANDOM_FUNCTION uint64_t dummy_bytes(uint64_t x, bool fp8)
{
    const uint64_t ones = 0x0101010101010101u;
    const uint64_t nan = (((x & 0x7f * ones) + ones) >> 7) & ones;
    return fp8 ? x ^ nan : x;
}

#endif
