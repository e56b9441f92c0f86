#include "base/clock.h"

#include <sched.h>
#include <time.h>

#ifdef _OPENMP
#include <omp.h>
#endif

double clock_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

int processors_allowed(void)
{
#ifdef _OPENMP
    return omp_get_num_procs(); /* the calling thread may be bound to one of them (OMP_PROC_BIND) */
#else
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    int count = CPU_COUNT(&set);
    return count > 0 ? count : 1;
#endif
}
