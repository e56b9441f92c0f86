/* Threads that take no signals, so that these come to the thread that runs the command, whose system calls they may
 * interrupt. Faults (SIGSEGV and its kin) are handled where they happen. */
#ifndef QUIRE_BASE_THREAD_H
#define QUIRE_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>

/* Threads that the caller starts between these two take no signals; *before is what was taken before. */
void thread_block_signals(sigset_t *before);
void thread_restore_signals(const sigset_t *before);

/* pthread_create of such a thread; returns what that does. */
int thread_start(pthread_t *out, void *(*run)(void *), void *context);

#endif
