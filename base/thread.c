#include "base/thread.h"

#include <stddef.h>

void thread_block_signals(sigset_t *before)
{
    static const int faults[] = {SIGBUS, SIGFPE, SIGILL, SIGSEGV};
    sigset_t set;
    sigfillset(&set);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) sigdelset(&set, faults[i]);
    pthread_sigmask(SIG_SETMASK, &set, before);
}

void thread_restore_signals(const sigset_t *before)
{
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

int thread_start(pthread_t *out, void *(*run)(void *), void *context)
{
    sigset_t before;
    thread_block_signals(&before);
    const int error = pthread_create(out, NULL, run, context);
    thread_restore_signals(&before);
    return error;
}
