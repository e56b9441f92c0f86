/* A loop is open from when it is published until every index has been taken, and over when no worker is inside. A
 * worker goes inside before it looks whether the loop is still open, and the caller closes the loop before it looks who
 * is inside. Both do so with sequentially consistent atomics, so that not both can miss the other (Dekker): whoever is
 * inside an open loop is waited for, and whoever comes late finds it closed and touches nothing.
 *
 * Sleeping and waking follow the same rule: a sleeper says so and looks again before it sleeps; whoever changes what it
 * waits for looks afterwards whether it sleeps. Sleep is a futex (futex(2)), which lets nobody sleep on a value that
 * has changed. */
#include "base/plural.h"
#include "base/pool.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/processors.h"
#include "base/spin.h"
#include "base/thread.h"

enum {
    LINE = 128, /* bytes; processors fetch cache lines in pairs */
    /* Bytes of a worker's, thread-local storage among them: ThreadSanitizer has 0.8 MiB of that. The usual 8 MiB of
     * each would take a limited address space away. */
    STACK = 2 << 20
};

/* What a thread shares with others. Each cache line has one writer at a time. */
struct member {
    _Alignas(LINE) atomic_int_least64_t next; /* the first index of the share that nobody has taken */
    int64_t end;
    _Alignas(LINE) atomic_uint inside; /* the number of the loop that the thread is in; 0: none */
    _Alignas(LINE) atomic_uint asleep; /* 1: on this word */
    struct pool *pool;
    int number;
    pthread_t thread;
};

struct pool {
    /* The loop. Workers read it inside. */
    _Alignas(LINE) pool_body *body;
    void *context;
    atomic_uint_least64_t open; /* its number * 2^32 + its threads; 0: none */
    atomic_bool closing;
    _Alignas(LINE) atomic_bool caller_sleeps; /* on the word `inside` of a worker */
    uint32_t loops;                           /* the number of the last loop */
    int threads;
    bool running;
    struct member members[]; /* [threads]; the first is the caller */
};

/* ---- a loop, on each thread ---- */

static int loop_threads(uint64_t open)
{
    return (int)(open & UINT32_MAX);
}

static uint32_t loop_number(uint64_t open)
{
    return (uint32_t)(open >> 32);
}

/* Takes indices: first those of the thread's own share, then those of the shares after it. */
static void take_indices(struct pool *p, int threads, int thread)
{
    pool_body *body = p->body;
    void *context = p->context;
    for (int i = 0; i < threads; i++) {
        struct member *m = &p->members[(thread + i) % threads];
        const int64_t end = m->end;
        while (atomic_load_explicit(&m->next, memory_order_relaxed) < end) {
            const int64_t index = atomic_fetch_add_explicit(&m->next, 1, memory_order_relaxed);
            if (index < end) body(context, index, thread);
        }
    }
}

/* ---- workers ---- */

/* Whether there is something for this worker that is newer than loop `last`. */
static bool is_called(const struct member *m, uint32_t last)
{
    const uint64_t open = atomic_load(&m->pool->open);
    return (open != 0 && loop_number(open) != last && m->number < loop_threads(open)) || atomic_load(&m->pool->closing);
}

static void wait_for_call(struct member *m, uint32_t last)
{
    struct spin s = {0};
    while (!is_called(m, last)) {
        if (spin(&s)) continue;
        atomic_store(&m->asleep, 1);
        if (!is_called(m, last)) futex_wait(&m->asleep, 1);
        atomic_store(&m->asleep, 0);
    }
}

static void *run_worker(void *member)
{
    struct member *m = member;
    struct pool *p = m->pool;
    for (uint32_t last = 0;;) {
        wait_for_call(m, last);
        if (atomic_load(&p->closing)) return NULL;
        const uint64_t open = atomic_load(&p->open);
        if (open == 0) continue;
        last = loop_number(open);
        atomic_store(&m->inside, last);
        if (atomic_load(&p->open) == open && m->number < loop_threads(open))
            take_indices(p, loop_threads(open), m->number);
        atomic_store(&m->inside, 0);
        if (atomic_load(&p->caller_sleeps)) futex_wake(&m->inside, 1);
    }
}

/* ---- the caller ---- */

static void wake(struct member *m)
{
    if (atomic_load(&m->asleep) == 0) return;
    atomic_store(&m->asleep, 0);
    futex_wake(&m->asleep, 1);
}

static void wait_until_left(struct pool *p, struct member *m, uint32_t number)
{
    struct spin s = {0};
    while (atomic_load(&m->inside) == number) {
        if (spin(&s)) continue;
        atomic_store(&p->caller_sleeps, true);
        futex_wait(&m->inside, number);
        atomic_store(&p->caller_sleeps, false);
    }
}

static void run_together(struct pool *p, int threads, int64_t count, pool_body *body, void *context)
{
    for (int t = 0; t < threads; t++) {
        p->members[t].end = count * (t + 1) / threads;
        atomic_store_explicit(&p->members[t].next, count * t / threads, memory_order_relaxed);
    }
    p->loops = p->loops == UINT32_MAX ? 1 : p->loops + 1;
    p->body = body;
    p->context = context;
    atomic_store(&p->open, (uint64_t)p->loops << 32 | (uint64_t)threads);
    for (int t = 1; t < threads; t++) wake(&p->members[t]);
    take_indices(p, threads, 0);
    atomic_store(&p->open, 0);
    for (int t = 1; t < p->threads; t++) wait_until_left(p, &p->members[t], p->loops);
}

void pool_run(struct pool *p, int threads, int64_t count, pool_body *body, void *context)
{
    if (!p || threads > p->threads) threads = p ? p->threads : 1;
    if (threads > count) threads = (int)count;
    if (threads <= 1) {
        for (int64_t i = 0; i < count; i++) body(context, i, 0);
        return;
    }
    assert(!p->running);
    p->running = true;
    run_together(p, threads, count, body, context);
    p->running = false;
}

/* ---- opening and closing ---- */

/* Starts workers until p->threads are `threads`, the caller included, or one cannot be started. Returns its error. */
static int start_workers(struct pool *p, int threads)
{
    sigset_t old;
    pthread_attr_t attributes;
    int error = pthread_attr_init(&attributes);
    if (error != 0) return error;
    pthread_attr_setstacksize(&attributes, STACK);
    thread_block_signals(&old);
    while (p->threads < threads) {
        struct member *m = &p->members[p->threads];
        m->pool = p;
        m->number = p->threads;
        error = pthread_create(&m->thread, &attributes, run_worker, m);
        if (error != 0) break;
        p->threads++;
    }
    thread_restore_signals(&old);
    pthread_attr_destroy(&attributes);
    return error;
}

/* A pool of the caller, with room for more. NULL: there is no memory. */
static struct pool *new_pool(int threads)
{
    const size_t bytes = sizeof(struct pool) + (size_t)threads * sizeof(struct member);
    void *memory;
    if (posix_memalign(&memory, LINE, bytes) != 0) return NULL;
    struct pool *p = memset(memory, 0, bytes);
    p->threads = 1;
    return p;
}

enum status pool_open(int threads, struct pool **out, struct error *err)
{
    *out = NULL;
    assert(threads > 0);
    struct pool *p = new_pool(threads);
    if (!p) return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for %d thread%s", threads, plural(threads));
    const int error = start_workers(p, threads);
    if (p->threads < threads) {
        error_set(err, STATUS_OUT_OF_MEMORY, "cannot start thread %d of %d: %s", p->threads + 1, threads,
                  strerror(error));
        error_advise(err, ADVICE_LOWER, "threads", "%d", p->threads);
        pool_close(p);
        return STATUS_OUT_OF_MEMORY;
    }
    *out = p;
    return STATUS_OK;
}

struct pool *pool_open_allowed(void)
{
    const int threads = processors_allowed();
    struct pool *p = new_pool(threads);
    if (p) start_workers(p, threads);
    return p;
}

void pool_close(struct pool *p)
{
    if (!p) return;
    atomic_store(&p->closing, true);
    for (int t = 1; t < p->threads; t++) wake(&p->members[t]);
    for (int t = 1; t < p->threads; t++) pthread_join(p->members[t].thread, NULL);
    free(p);
}

int pool_threads(const struct pool *p)
{
    return p ? p->threads : 1;
}
