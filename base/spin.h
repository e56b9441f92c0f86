/* How a thread waits for another: it looks for some tens of microseconds, and then sleeps on a futex (futex(2)), which
 * lets nobody sleep on a value that has changed. */
#ifndef QUIRE_BASE_SPIN_H
#define QUIRE_BASE_SPIN_H

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

enum {
    SPIN_LOOKS = 32, /* at what a thread waits for, between two looks at the clock */
    FUTEX_ALL = INT_MAX
};

/* A thread that waits keeps looking for this long, longer than what a decode step does on one thread between two loops,
 * and then sleeps. After a few moments it offers its processor to other threads between looks: on a busy machine the
 * one that it waits for may be among them. */
static const double SPIN_SECONDS = 50e-6, SPIN_ALONE_SECONDS = 10e-6;

static inline void futex_wait(atomic_uint *word, unsigned value)
{
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static inline void futex_wait_for(atomic_uint *word, unsigned value, double seconds)
{
    const struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, &time, NULL, 0);
}

static inline void futex_wake(atomic_uint *word, int threads)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, threads, NULL, NULL, 0);
}

struct spin {
    int looks;
    double start;
};

/* Passes a moment. Returns false when it is time to sleep. */
static inline bool spin(struct spin *s)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
    if (++s->looks % SPIN_LOOKS) return true;
    const double now = clock_seconds();
    if (s->start == 0) s->start = now;
    if (now - s->start > SPIN_ALONE_SECONDS) sched_yield();
    return now - s->start < SPIN_SECONDS;
}

#endif
