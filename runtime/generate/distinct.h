/* Counts how many different values a stream has, in constant memory: HyperLogLog (Flajolet, Fusy, Gandouet and Meunier,
 * 2007), with linear counting where the values are few. The standard error is 0.8 %; below ten thousand values it is a
 * few values at most. */
#ifndef QUIRE_RUNTIME_DISTINCT_H
#define QUIRE_RUNTIME_DISTINCT_H

#include <stdint.h>

#define DISTINCT_BITS 14

/* Zero-initialise it. */
struct distinct {
    uint8_t registers[1 << DISTINCT_BITS]; /* of the hashes that begin with its number, the most leading zeros + 1 */
};

void distinct_add(struct distinct *d, uint64_t hash); /* of a value; its bits must be random */
double distinct_count(const struct distinct *d);

#endif
