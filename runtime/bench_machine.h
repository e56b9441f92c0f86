/* What the machine can do at most, measured here and now: the yardstick for what a benchmark found. */
#ifndef QUIRE_RUNTIME_BENCH_MACHINE_H
#define QUIRE_RUNTIME_BENCH_MACHINE_H

/* Bytes a second that `threads` threads read together from main memory, the best of a few passes over more than the
 * caches hold. NaN if there is no memory for it. Takes a few tenths of a second. */
double bench_machine_read_speed(int threads);

#endif
