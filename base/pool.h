/* Threads that share the iterations of a loop.
 *
 * A pool of n threads is the thread that calls pool_run and n - 1 workers. Between two loops a worker waits with its
 * eyes open for some tens of microseconds, so that the next loop begins within a microsecond or two; then it sleeps and
 * costs nothing until it is woken.
 *
 * Each thread has a share of the indices, which depends only on the loop's count and threads, so that in every pass it
 * finds in its caches, and in memory near it, what it touched in the last one. A thread that has finished its share
 * takes indices from the shares of others. So a thread that the system has taken off its processor holds up no more
 * than the index that it works on, and the loop does not wait for a worker that has not woken yet. Results must
 * therefore not depend on which thread computes an index.
 *
 * A pool belongs to the thread that opened it or to whoever uses it instead: one loop at a time. Pools know nothing of
 * each other. Workers run no signal handlers but those of their own faults. A process made by fork() must not use the
 * pools of its parent. */
#ifndef QUIRE_BASE_POOL_H
#define QUIRE_BASE_POOL_H

#include <stdint.h>

#include "base/status.h"

struct pool;

/* Does index `index` of a loop. `thread` numbers the thread that calls it, from 0 to the loop's threads - 1: it may use
 * scratch memory of that number. It must not start a loop in the same pool, which debug builds check. */
typedef void pool_body(void *context, int64_t index, int thread);

/* Starts threads - 1 workers; with one thread there are none. If the system gives fewer threads, *out is NULL, and the
 * error says how many there were. */
enum status pool_open(int threads, struct pool **out, struct error *err);
/* A pool of the threads that this process may keep busy (processors_allowed), or of as many as the system gives. NULL:
 * the caller is the only one. */
struct pool *pool_open_allowed(void);
/* Ends and joins the workers. p may be NULL. */
void pool_close(struct pool *p);

int pool_threads(const struct pool *p); /* NULL: 1 */

/* Calls body(context, i, thread) once for each i from 0 to count - 1, on up to `threads` threads of the pool, and
 * returns when all are done. The share of thread t is the indices from count * t / threads up to
 * count * (t + 1) / threads, in this order. p NULL: only the caller does them. */
void pool_run(struct pool *p, int threads, int64_t count, pool_body *body, void *context);

#endif
