#include "runtime/bench_machine.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum { PASSES = 5 };
static const int64_t BUFFER_BYTES = (int64_t)512 << 20;

/* Eight sums, so that no addition waits for the one before. */
static uint64_t sum_words(const uint64_t *words, int64_t count)
{
    uint64_t sums[8] = {0};
    for (int64_t i = 0; i + 8 <= count; i += 8)
        for (int lane = 0; lane < 8; lane++) sums[lane] += words[i + lane];
    return sums[0] + sums[1] + sums[2] + sums[3] + sums[4] + sums[5] + sums[6] + sums[7];
}

double bench_machine_read_speed(int threads)
{
    const int64_t words = BUFFER_BYTES / (int64_t)sizeof(uint64_t), piece = words / threads;
    uint64_t *buffer = malloc((size_t)BUFFER_BYTES);
    if (!buffer) return NAN;
    memset(buffer, 1, (size_t)BUFFER_BYTES);
    double best = 0;
    volatile uint64_t kept = 0; /* or the compiler would leave the reading out */
    for (int pass = 0; pass < PASSES; pass++) {
        uint64_t total = 0;
        const double start = clock_seconds();
#pragma omp parallel for num_threads(threads) reduction(+ : total) schedule(static, 1)
        for (int thread = 0; thread < threads; thread++) total += sum_words(buffer + thread * piece, piece);
        const double seconds = clock_seconds() - start;
        kept += total;
        if ((double)BUFFER_BYTES / seconds > best) best = (double)BUFFER_BYTES / seconds;
    }
    free(buffer);
    return best;
}
