/* The threads that share a loop: every index once, results visible afterwards, sleeping and waking, failures. Bodies
 * write without atomics wherever the pool promises that nobody else does, so that ThreadSanitizer checks the promise.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/pool.h"
#include "base/processors.h"

enum { MAX_THREADS = 9, MAX_COUNT = 1000 };

/* ---- pthread_create, which the linker gives to the function below (--wrap, in CMakeLists.txt) ---- */

static int threads_left = -1; /* how many can be created; -1: any number */

int __real_pthread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *), void *argument);
int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *), void *argument);

int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *attributes, void *(*run)(void *), void *argument)
{
    if (threads_left == 0) return EAGAIN;
    if (threads_left > 0) threads_left--;
    return __real_pthread_create(out, attributes, run, argument);
}

static struct pool *open_pool(int threads)
{
    struct pool *p;
    struct error err;
    if (pool_open(threads, &p, &err) != STATUS_OK) fail_msg("%s", err.text);
    assert_int_equal(pool_threads(p), threads);
    return p;
}

/* ---- loops ---- */

struct record {
    int calls[MAX_COUNT]; /* of each index */
    int inside[MAX_THREADS];
    int wrong[MAX_THREADS]; /* calls with a thread's number while another had it */
    int threads;
    int64_t slow; /* this index takes milliseconds; -1: none */
};

static void note(void *record, int64_t index, int thread)
{
    struct record *r = record;
    if (thread < 0 || thread >= r->threads) abort();
    if (r->inside[thread]++ != 0) r->wrong[thread]++;
    r->calls[index]++;
    if (index == r->slow) usleep(3000);
    r->inside[thread]--;
}

static void run_and_check(struct pool *p, int threads, int64_t count, int64_t slow)
{
    struct record *r = calloc(1, sizeof *r);
    r->threads = threads;
    r->slow = slow;
    pool_run(p, threads, count, note, r);
    for (int64_t i = 0; i < MAX_COUNT; i++) assert_int_equal(r->calls[i], i < count);
    for (int t = 0; t < MAX_THREADS; t++) assert_int_equal(r->wrong[t] + r->inside[t], 0);
    free(r);
}

static void each_index_is_done_once(void **state)
{
    static const int64_t counts[] = {0, 1, 2, 3, 7, 8, 9, 10, 64, 100, MAX_COUNT};
    (void)state;
    for (int size = 1; size <= MAX_THREADS; size++) {
        struct pool *p = open_pool(size);
        for (int threads = 1; threads <= size; threads++)
            for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) run_and_check(p, threads, counts[i], -1);
        pool_close(p);
    }
}

static void more_threads_than_the_pool_has_are_not_used(void **state)
{
    (void)state;
    struct pool *p = open_pool(3);
    struct record *r = calloc(1, sizeof *r);
    r->threads = 3;
    r->slow = -1;
    pool_run(p, 100, MAX_COUNT, note, r);
    for (int64_t i = 0; i < MAX_COUNT; i++) assert_int_equal(r->calls[i], 1);
    free(r);
    pool_close(p);
}

static void add(void *sums, int64_t index, int thread)
{
    (void)thread;
    ((int64_t *)sums)[index] += index;
}

/* Each loop reads what the one before it wrote, perhaps on another thread; between them the caller does. */
static void loops_follow_each_other(void **state)
{
    enum { LOOPS = 5000, COUNT = 37 };
    int64_t sums[COUNT] = {0};
    (void)state;
    struct pool *p = open_pool(4);
    for (int i = 0; i < LOOPS; i++) {
        pool_run(p, 1 + i % 4, COUNT, add, sums);
        for (int64_t j = 0; j < COUNT; j++) assert_int_equal(sums[j], j * (i + 1));
    }
    pool_close(p);
}

static void threads_wake_from_sleep(void **state)
{
    (void)state;
    struct pool *p = open_pool(5);
    for (int i = 0; i < 30; i++) {
        usleep((unsigned)(i * 100));
        run_and_check(p, 5, 64, -1);
    }
    pool_close(p);
}

/* The caller or a worker is held up; the others take the rest, and the caller sleeps if need be. */
static void a_slow_index_is_waited_for(void **state)
{
    (void)state;
    struct pool *p = open_pool(4);
    for (int64_t slow = 0; slow < 40; slow++) run_and_check(p, 4, 40, slow);
    pool_close(p);
}

/* ---- who may do what ---- */

static void *loops_of_own(void *unused)
{
    (void)unused;
    loops_follow_each_other(NULL);
    return NULL;
}

static void pools_do_not_disturb_each_other(void **state)
{
    pthread_t others[2];
    (void)state;
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&others[i], NULL, loops_of_own, NULL), 0);
    loops_follow_each_other(NULL);
    for (int i = 0; i < 2; i++) pthread_join(others[i], NULL);
}

static void check_signals(void *wrong, int64_t index, int thread)
{
    sigset_t set;
    (void)index;
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    ((int *)wrong)[thread] += sigismember(&set, SIGINT) != (thread > 0) || sigismember(&set, SIGBUS) != 0;
    usleep(100);
}

static void workers_leave_signals_to_the_program(void **state)
{
    int wrong[4] = {0};
    (void)state;
    struct pool *p = open_pool(4);
    pool_run(p, 4, 100, check_signals, wrong);
    for (int t = 0; t < 4; t++) assert_int_equal(wrong[t], 0);
    pool_close(p);
}

static void start_loop(void *pool, int64_t index, int thread)
{
    int64_t sums[2] = {0};
    (void)index, (void)thread;
    pool_run(pool, 2, 2, add, sums);
}

static void a_loop_in_a_loop_is_refused(void **state)
{
    (void)state;
#ifdef NDEBUG
    (void)start_loop;
    skip();
#else
    const pid_t child = fork();
    if (child == 0) {
        const struct rlimit no_core = {0, 0};
        struct pool *p = open_pool(2);
        setrlimit(RLIMIT_CORE, &no_core);
        signal(SIGABRT, SIG_DFL);
        if (!freopen("/dev/null", "w", stderr)) _exit(3);
        pool_run(p, 2, 2, start_loop, p);
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
#endif
}

/* ---- opening and closing ---- */

static void pools_close_at_once_and_after_sleep(void **state)
{
    (void)state;
    pool_close(NULL);
    for (int i = 0; i < 50; i++) {
        struct pool *p = open_pool(1 + i % 6);
        if (i % 3 == 1) run_and_check(p, 1 + i % 6, 20, -1);
        if (i % 3 == 2) usleep(500);
        pool_close(p);
    }
}

static void a_thread_that_cannot_be_started_is_an_error(void **state)
{
    struct pool *p;
    struct error err = {0};
    (void)state;
    for (int left = 0; left < 3; left++) {
        threads_left = left;
        assert_int_equal(pool_open(4, &p, &err), STATUS_OUT_OF_MEMORY);
        assert_null(p);
        char expected[100];
        snprintf(expected, sizeof expected, "cannot start thread %d of 4: Resource temporarily unavailable", left + 2);
        assert_string_equal(err.text, expected);
        assert_int_equal(err.num_advice, 1);
        assert_string_equal(err.advice[0].setting, "threads");
        assert_int_equal(atoi(err.advice[0].value), left + 1);
    }
    threads_left = 0;
    assert_int_equal(pool_open(1, &p, &err), STATUS_OK);
    threads_left = -1;
    run_and_check(p, 1, 10, -1);
    pool_close(p);
}

/* The caller does alone what no thread helps with. */
static void a_pool_has_the_threads_that_can_be_started(void **state)
{
    (void)state;
    for (int left = -1; left < 3; left++) {
        threads_left = left;
        struct pool *p = pool_open_allowed();
        threads_left = -1;
        const int allowed = processors_allowed();
        assert_int_equal(pool_threads(p), left >= 0 && left + 1 < allowed ? left + 1 : allowed);
        run_and_check(p, MAX_THREADS, 100, -1);
        pool_close(p);
    }
    assert_int_equal(pool_threads(NULL), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loop_in_a_loop_is_refused), /* first: it forks */
        cmocka_unit_test(each_index_is_done_once),
        cmocka_unit_test(more_threads_than_the_pool_has_are_not_used),
        cmocka_unit_test(loops_follow_each_other),
        cmocka_unit_test(threads_wake_from_sleep),
        cmocka_unit_test(a_slow_index_is_waited_for),
        cmocka_unit_test(pools_do_not_disturb_each_other),
        cmocka_unit_test(workers_leave_signals_to_the_program),
        cmocka_unit_test(pools_close_at_once_and_after_sleep),
        cmocka_unit_test(a_thread_that_cannot_be_started_is_an_error),
        cmocka_unit_test(a_pool_has_the_threads_that_can_be_started),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
