#include "runtime/generate/distinct.h"

#include <math.h>

enum { REGISTERS = 1 << DISTINCT_BITS };

void distinct_add(struct distinct *d, uint64_t hash)
{
    uint8_t *most = &d->registers[hash >> (64 - DISTINCT_BITS)];
    const uint64_t rest = hash << DISTINCT_BITS | UINT64_C(1) << (DISTINCT_BITS - 1); /* never 0 */
    const uint8_t zeros = (uint8_t)(__builtin_clzll(rest) + 1);
    if (zeros > *most) *most = zeros;
}

double distinct_count(const struct distinct *d)
{
    const double m = REGISTERS, alpha = 0.7213 / (1 + 1.079 / m);
    double sum = 0;
    int num_empty = 0;
    for (int i = 0; i < REGISTERS; i++) {
        sum += ldexp(1, -d->registers[i]);
        num_empty += d->registers[i] == 0;
    }
    const double raw = alpha * m * m / sum;
    return raw <= 2.5 * m && num_empty > 0 ? m * log(m / num_empty) : raw;
}
