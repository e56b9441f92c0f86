/* Prefetching of weights that a thread reads once, at consecutive addresses but for a few rows that it reads side by
 * side. Processors do not prefetch across pages by themselves, and the weights of an output feature are often no longer
 * than a page. */
#ifndef QUIRE_KERNELS_CPU_VECTOR_PREFETCH_H
#define QUIRE_KERNELS_CPU_VECTOR_PREFETCH_H

#include <stdbool.h>
#include <stdint.h>

enum {
    CACHE_LINE = 64,
    NEAR_BYTES = 2048,   /* of a row ahead: into the L1 cache, which has room for few lines that are under way */
    FAR_BYTES = 16 << 10 /* of all rows ahead: into the L2 cache, which has room for more */
};

/* Call it for each line of `rows` rows of row_bytes, which are `at` bytes from the start of each. Past the ends of the
 * rows it prefetches the rows after them. far: into the L2 cache, too, which pays only where little is computed with a
 * line. */
VECTOR void prefetch_rows(const uint8_t *weights, int64_t row_bytes, const int rows, int64_t at, const bool far)
{
    int64_t near = at + NEAR_BYTES;
    if (near >= row_bytes) near += (rows - 1) * row_bytes;
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        __builtin_prefetch(weights + r * row_bytes + near);
        if (far) __builtin_prefetch(weights + rows * at + r * CACHE_LINE + FAR_BYTES, 0, 2);
    }
}

#endif
