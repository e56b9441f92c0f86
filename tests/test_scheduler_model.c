/* Model checkers of the scheduler (support/scheduler_model.h).
 *
 * Random runs: a random configuration with few blocks, some hundred random operations, and then all requests run to
 * their ends. Exhaustive runs: every sequence of a few operations to a depth, on pools of up to 4 blocks and with up to
 * 3 sequences; a state that was seen before is not gone through again. A sequence of operations that fails is made as
 * short as possible and printed, one operation a line.
 *
 * Without arguments, a few seconds of both. On demand:
 *
 *     test_scheduler_model --operations 10000000 --seed 1     random runs
 *     test_scheduler_model --depth 12                         exhaustive runs
 *     test_scheduler_model --replay FILE                      a list that was printed
 *
 * --shrink no leaves out the shortening. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/random.h"
#include "tests/support/scheduler_model.h"

#define MAX_LIST 2048
#define SHORT_OPERATIONS 150000
#define SHORT_DEPTH 9

/* ---- lists of operations ---- */

/* Where a child process notes what it does, so that its parent knows it even after a crash. */
struct record {
    int32_t count;
    struct operation list[MAX_LIST]; /* the first is the configuration */
    struct error err;                /* of the operation that failed; "": none */
    int64_t states, edges;           /* of the exhaustive runs */
    struct scheduler_model_totals totals;
};

static void print_list(const struct operation *list, int32_t count)
{
    for (int32_t i = 0; i < count; i++) operation_print(&list[i], stdout);
}

/* Runs a list, and then its requests to their ends. *failed gets the operation that failed, or `count`. Each operation
 * and what it leads to is printed to `out`, unless that is NULL. */
static enum status run_list(const struct operation *list, int32_t count, int32_t *failed, FILE *out, struct error *err)
{
    struct scheduler_model *m;
    *failed = 0;
    enum status status = scheduler_model_create(&list[0], &m, err);
    for (int32_t i = 1; i < count && status == STATUS_OK; i++) {
        *failed = i;
        status = scheduler_model_apply(m, &list[i], err);
        if (!out) continue;
        operation_print(&list[i], out);
        scheduler_model_print(m, out);
    }
    if (status == STATUS_OK) {
        *failed = count;
        status = scheduler_model_finish(m, err);
    }
    scheduler_model_destroy(m);
    return status;
}

/* Whether two sentences say the same of other numbers. Two crashes, which say nothing, are the same. */
static bool same_failure(const char *a, const char *b)
{
    static const char digits[] = "0123456789-";
    for (;;) {
        a += strspn(a, digits);
        b += strspn(b, digits);
        if (*a != *b || !*a) return *a == *b;
        a++;
        b++;
    }
}

/* What the shrinker looks for: `err` of the record; `found` gets what a list does. */
struct failure {
    struct error err, found;
};

/* Runs the list in a process of its own, so that a crash or an endless loop is a failure like any other. */
static bool list_fails(const struct operation *list, int32_t count, void *user)
{
    struct failure *f = user;
    f->found.text[0] = '\0';
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        int32_t failed;
        struct error err;
        alarm(5);
        if (!freopen("/dev/null", "w", stderr)) _exit(1);
        if (run_list(list, count, &failed, NULL, &err) == STATUS_OK) _exit(0);
        f->found = err;
        _exit(1);
    }
    int status = 0;
    return child > 0 && waitpid(child, &status, 0) == child && status != 0 && same_failure(f->err.text, f->found.text);
}

static void *open_shared(size_t size)
{
    void *shared = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(shared != MAP_FAILED);
    return shared;
}

static bool shrinks = true; /* --shrink no: a failing list is printed as it is */

static void report(struct record *r)
{
    struct failure *f = open_shared(sizeof *f);
    f->err = r->err;
    printf("after %lld operations: %s\n", (long long)r->totals.operations,
           r->err.text[0] ? r->err.text : "a crash, or no end within its time");
    const int32_t count = r->count - 1;
    if (shrinks) r->count = operation_list_shrink(r->list, r->count, list_fails, f);
    printf("%d operations fail, %d are enough:\n\n", count, r->count - 1);
    print_list(r->list, r->count);
    if (list_fails(r->list, r->count, f)) printf("\n%s\n", f->found.text);
    munmap(f, sizeof *f);
}

/* Runs `work` in a child. False: it failed, which was reported. */
static bool run_in_child(struct record *r, void (*work)(struct record *r, int64_t amount, uint64_t seed),
                         int64_t amount, uint64_t seed)
{
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        work(r, amount, seed);
        _exit(r->err.text[0] != '\0');
    }
    int status = -1;
    if (child > 0 && waitpid(child, &status, 0) == child && status == 0) return true;
    report(r);
    return false;
}

/* ---- random runs ---- */

struct generator {
    struct random random, for_drafts, for_states, for_batches; /* for_*: a list is the same with and without them */
    int32_t next_request, depth, adds, ends, damages, cancels, sequences;
    int32_t drafts, right; /* percent of steps with drafts, and of these with many right ones */
    bool on_device;        /* all drafts of the list are the device's */
    bool has_states;
};

static int32_t between(struct generator *g, int32_t low, int32_t high)
{
    return (int32_t)random_between(&g->random, low, high);
}

static bool chance(struct generator *g, int32_t percent)
{
    return between(g, 1, 100) <= percent;
}

static void random_windows(struct generator *g, int32_t *v)
{
    v[CONFIG_GROUPS] = chance(g, 45) ? 1 : between(g, 2, 4);
    for (int32_t i = 0; i < v[CONFIG_GROUPS]; i++) v[CONFIG_WINDOW + i] = chance(g, 50) ? 0 : between(g, 1, 12);
    if (chance(g, 40)) v[CONFIG_CHUNKS] = between(g, 1, 15);
    if (chance(g, 50)) return; /* blocks of one size */
    for (int32_t i = 0; i < v[CONFIG_GROUPS]; i++) v[CONFIG_SHIFT + i] = between(g, 0, 2);
}

/* Mostly as many blocks as one to three of the longest sequences need. */
static int32_t random_blocks(struct generator *g, const int32_t *v)
{
    int32_t blocks = 0;
    for (int32_t i = 0; i < v[CONFIG_GROUPS]; i++) {
        const int32_t size = v[CONFIG_SIZE] << v[CONFIG_SHIFT + i];
        const int32_t each = (v[CONFIG_LENGTH] + size - 1) / size;
        const int32_t window = (v[CONFIG_WINDOW + i] + size - 1) / size + 1;
        blocks += v[CONFIG_WINDOW + i] > 0 && window < each ? window : each;
    }
    if (chance(g, 10)) return between(g, 4, 60);
    return chance(g, 5) ? between(g, 100, 200) : between(g, blocks, 3 * blocks);
}

static struct operation random_config(struct generator *g)
{
    struct operation config = operation_of(OPERATION_CONFIG);
    int32_t *v = config.values;
    v[CONFIG_SIZE] = 1 << between(g, 0, 2);
    v[CONFIG_LENGTH] = between(g, 4, chance(g, 70) ? 20 : 40);
    random_windows(g, v);
    v[CONFIG_BLOCKS] = random_blocks(g, v);
    v[CONFIG_HOST] = chance(g, 70) ? between(g, 1, 40) : 0;
    v[CONFIG_TOKENS] = chance(g, 40) ? between(g, 1, 8) : between(g, 8, 40);
    v[CONFIG_SEQS] = chance(g, 80) ? between(g, 3, 10) : between(g, 1, 3);
    v[CONFIG_CACHING] = chance(g, 70);
    v[CONFIG_CHUNKED] = chance(g, 85);
    v[CONFIG_MODE] = between(g, 0, 2);
    v[CONFIG_POLICY] = chance(g, 35);
    v[CONFIG_HASHES] = chance(g, 60) ? 0 : between(g, 1, 3);
    v[CONFIG_GROW] = chance(g, 40) ? 0 : between(g, 1, 5);
    v[CONFIG_FAILS] = chance(g, 60) ? 0 : between(g, 1, 3);
    v[CONFIG_NAMESPACE] = chance(g, 85) ? 0 : between(g, 1, v[CONFIG_LENGTH]);
    v[CONFIG_WATERMARK] = chance(g, 80) ? 0 : between(g, 1, (v[CONFIG_BLOCKS] + 7) / 8);
    return config;
}

static struct operation random_add(struct generator *g, const struct operation *config)
{
    struct operation add = operation_of(OPERATION_ADD);
    int32_t *v = add.values;
    const int32_t most = config->values[CONFIG_LENGTH];
    v[ADD_REQUEST] = g->next_request++;
    v[ADD_LENGTH] = between(g, 1, chance(g, 20) ? most : (most + 2) / 3);
    v[ADD_BASE] = between(g, 0, 1);
    v[ADD_SHARED] = chance(g, 70) ? between(g, 0, most) : 0;
    v[ADD_N] = chance(g, 50) ? 1 : between(g, 1, 4);
    if (v[ADD_N] > config->values[CONFIG_SEQS] && chance(g, 95)) v[ADD_N] = config->values[CONFIG_SEQS];
    v[ADD_MAX] = chance(g, 30) ? 0 : between(g, 1, 16);
    v[ADD_MIN] = chance(g, 20) ? between(g, 0, 6) : 0;
    v[ADD_EOS] = chance(g, 60) ? 0 : between(g, 1, 2);
    v[ADD_PRIORITY] = chance(g, 50) ? 0 : between(g, 0, 2);
    v[ADD_SALT] = chance(g, 80) ? 0 : between(g, 1, 5);
    v[ADD_BEAMS] = chance(g, 20);
    v[ADD_SEED] = between(g, 0, 1);
    v[ADD_LOGPROBS] = chance(g, 80) ? 0 : between(g, 1, 4);
    if (g->has_states && random_between(&g->for_states, 0, 1))
        v[ADD_STATE] = (int32_t)random_between(&g->for_states, 1, most);
    return add;
}

static struct operation on_a_request(struct generator *g, const struct scheduler_model *m, enum operation_kind kind)
{
    struct operation operation = operation_of(kind);
    const int32_t count = scheduler_model_num_requests(m);
    if (count > 0) operation.values[0] = scheduler_model_request(m, between(g, 0, count - 1));
    if (kind == OPERATION_FINISH) operation.values[FINISH_SEQUENCE] = between(g, 0, 3);
    if (kind == OPERATION_BEAMS) operation.values[BEAMS_CHOICE] = chance(g, 20) ? 0 : between(g, 1, 9999);
    return operation;
}

static void random_drafts(struct generator *g, int32_t *v)
{
    struct random *random = &g->for_drafts;
    if ((int32_t)random_between(random, 1, 100) > g->drafts) return;
    v[SCHEDULE_DRAFTS] = (int32_t)random_between(random, 1, 8);
    v[SCHEDULE_RIGHT] = (int32_t)random_between(random, 1, 100) <= g->right ? 8 : (int32_t)random_between(random, 0, 4);
    v[SCHEDULE_SPREAD] = (int32_t)random_between(random, 0, 99);
    v[SCHEDULE_DEVICE] = g->on_device;
}

static struct operation random_operation(struct generator *g, const struct scheduler_model *m,
                                         const struct operation *config)
{
    for (int32_t i = 0; i < scheduler_model_num_requests(m); i++)
        if (scheduler_model_beams_are_due(m, scheduler_model_request(m, i)) && chance(g, 50)) {
            struct operation beams = on_a_request(g, m, OPERATION_BEAMS);
            beams.values[BEAMS_REQUEST] = scheduler_model_request(m, i);
            return beams;
        }
    if (chance(g, g->adds)) return random_add(g, config);
    if (chance(g, g->ends)) return on_a_request(g, m, chance(g, 50) ? OPERATION_ABORT : OPERATION_FINISH);
    if (chance(g, 1)) return operation_of(OPERATION_RESET);
    struct operation collect = operation_of(OPERATION_COLLECT);
    if (chance(g, g->damages)) collect.values[COLLECT_DAMAGED] = between(g, 1, 4);
    const int32_t in_flight = scheduler_model_in_flight(m);
    if (in_flight >= g->depth && !chance(g, 2)) return collect;
    if (in_flight > 0 && !chance(g, 60)) return collect;
    struct operation schedule = operation_of(OPERATION_SCHEDULE);
    if (g->cancels > 0 && chance(g, g->cancels))
        schedule.values[SCHEDULE_CANCEL] = chance(g, 40) ? 1 : between(g, 2, 99);
    random_drafts(g, schedule.values);
    return schedule;
}

/* Tight, or with room for snapshots. Lists with two namespaces have no states. */
static void random_states(struct generator *g, int32_t *v)
{
    struct random *random = &g->for_states;
    g->has_states = v[CONFIG_NAMESPACE] == 0 && random_between(random, 0, 9) < 4;
    if (!g->has_states) return;
    v[CONFIG_STATES] = (int32_t)random_between(random, 1, random_between(random, 0, 1) ? 4 : 60);
    if (random_between(random, 0, 2) == 0) v[CONFIG_INTERVAL] = (int32_t)random_between(random, 1, 8);
    if (v[CONFIG_HOST] > 0) v[CONFIG_HOST_SLOTS] = (int32_t)random_between(random, 0, 12);
}

/* In a quarter of the lists sequences are dealt to several batches. */
static void random_batches(struct generator *g, int32_t *v)
{
    if (random_between(&g->for_batches, 0, 3) > 0) return;
    v[CONFIG_BATCHES] = (int32_t)random_between(&g->for_batches, 2, random_between(&g->for_batches, 0, 1) ? 3 : 8);
    g->depth = (int32_t)random_between(&g->for_batches, 1, v[CONFIG_BATCHES]);
}

/* One run; the list is noted as it is made. */
static void run_once(struct record *r, uint64_t seed, int64_t before)
{
    struct generator g = {.random = {.state = random_mix(seed)}};
    g.depth = between(&g, 1, 2);
    g.adds = between(&g, 2, 30);
    g.ends = chance(&g, 50) ? 0 : between(&g, 1, chance(&g, 30) ? 20 : 5);
    g.damages = chance(&g, 90) ? 0 : 5;
    g.cancels = seed % 4 == 3 ? between(&g, 1, 10) : 0; /* in three of four lists no step is cancelled */
    g.for_drafts.state = g.random.state + 1;
    g.drafts = random_between(&g.for_drafts, 0, 2) == 0 ? 0 : (int32_t)random_between(&g.for_drafts, 20, 100);
    g.right = (int32_t)random_between(&g.for_drafts, 0, 100);
    g.on_device = random_between(&g.for_drafts, 0, 2) == 0;
    const int32_t length = between(&g, 10, 500);
    struct scheduler_model *m;
    r->list[0] = random_config(&g);
    g.for_states.state = g.random.state + 2;
    random_states(&g, r->list[0].values);
    g.for_batches.state = g.random.state + 3;
    random_batches(&g, r->list[0].values);
    if (g.drafts > 0) r->list[0].values[CONFIG_DRAFTS] = (int32_t)random_between(&g.for_drafts, 1, 40);
    r->count = 1;
    enum status status = scheduler_model_create(&r->list[0], &m, &r->err);
    while (r->count <= length && status == STATUS_OK) {
        r->list[r->count] = random_operation(&g, m, &r->list[0]);
        r->totals.operations = before + r->count;
        status = scheduler_model_apply(m, &r->list[r->count++], &r->err);
    }
    if (status == STATUS_OK) status = scheduler_model_finish(m, &r->err);
    r->totals.operations = before;
    if (status == STATUS_OK) r->err.text[0] = '\0';
    if (m) scheduler_model_totals_add(&r->totals, scheduler_model_get_totals(m));
    scheduler_model_destroy(m);
}

static void run_random(struct record *r, int64_t operations, uint64_t seed)
{
    for (uint64_t i = 0; r->totals.operations < operations && !r->err.text[0]; i++) {
        alarm(60); /* ends the process: no run takes a second */
        run_once(r, random_mix(seed) + i, r->totals.operations);
    }
    alarm(0);
}

static void print_totals(const struct scheduler_model_totals *t)
{
    printf(
        "%lld operations checked: %lld requests, %lld steps, %lld copies, %lld times collected first, %lld "
        "recomputed, %lld swapped (%lld blocks back), %lld prefix hits, %lld evictions, %lld forks, %lld sets of "
        "beams, "
        "%lld blocks out of windows, %lld prefix hits and %lld swapped blocks where blocks have several sizes, "
        "%lld changes of the namespace, %lld targets, %lld failures of swap space, "
        "%lld cancelled steps (%lld of them behind another), %lld runs (%lld with drafts of the device), %lld drafts, "
        "%lld accepted, %lld rollbacks "
        "that returned blocks, %lld ends inside runs, %lld runs of what had ended, %lld drafts without room; "
        "%lld snapshots, %lld of them evicted, %lld found (%lld after a preemption), %lld times awaited, %lld "
        "boundaries "
        "kept, %lld runs with states, %lld swapped states back; sequences "
        "ended: %lld stop, %lld length, %lld abort, %lld error\n",
        (long long)t->operations, (long long)t->requests, (long long)t->steps, (long long)t->copies,
        (long long)t->collect_first, (long long)t->recomputed, (long long)t->swapped, (long long)t->swapped_in,
        (long long)t->hits, (long long)t->evictions, (long long)t->forks, (long long)t->beams,
        (long long)t->window_blocks, (long long)t->mixed_hits, (long long)t->mixed_swapped_in,
        (long long)t->namespace_changes, (long long)t->targets, (long long)t->host_failures, (long long)t->cancelled,
        (long long)t->cancelled_second, (long long)t->runs, (long long)t->device_runs, (long long)t->drafts,
        (long long)t->accepted, (long long)t->rollbacks, (long long)t->ends_in_runs, (long long)t->lost_runs,
        (long long)t->dropped, (long long)t->snapshots, (long long)t->snapshots_evicted, (long long)t->snapshot_hits,
        (long long)t->recovered, (long long)t->awaited, (long long)t->kept, (long long)t->state_runs,
        (long long)t->states_swapped_in, (long long)t->stops, (long long)t->lengths, (long long)t->aborts,
        (long long)t->errors);
}

/* ---- exhaustive runs ---- */

/* A configuration and the operations that every sequence is made of. */
struct universe {
    const char *lines[24]; /* the configuration, then the operations; NULL ends them */
};

#define EACH "schedule", "collect"
static const struct universe universes[] = {
    /* One sequence after another, caching: 2 blocks of 2. */
    {{"config blocks=2 size=2 tokens=3 seqs=3 length=4 caching=1", "add request=0 length=3 shared=3 max=1",
      "add request=1 length=3 shared=2 max=1", "add request=2 length=1 max=3", "abort request=0", "abort request=1",
      "abort request=2", "reset", EACH}},
    /* A fork, recomputed or swapped. */
    {{"config blocks=4 host=4 size=2 tokens=4 seqs=3 length=8 caching=1", "add request=0 length=3 shared=3 n=2 max=3",
      "add request=1 length=2 shared=3 max=4", "abort request=0", "abort request=1", "finish request=0",
      "finish request=0 sequence=1", EACH}},
    {{"config blocks=4 host=3 size=1 tokens=2 seqs=3 length=4 mode=2 grow=2 fails=2",
      "add request=0 length=2 n=2 max=2 shared=2", "add request=1 length=1 max=3 shared=1", "abort request=0",
      "abort request=1", EACH}},
    /* A window beside full attention. */
    {{"config blocks=4 size=2 tokens=2 seqs=2 length=6 groups=2 window2=2 caching=1",
      "add request=0 length=3 shared=3 max=3", "add request=1 length=4 shared=3 max=2", "add request=2 length=1 max=2",
      "abort request=0", "abort request=1", EACH}},
    {{"config blocks=3 size=1 tokens=3 seqs=3 length=6 window=2 caching=1 hashes=1 host=3 mode=2",
      "add request=0 length=2 shared=2 max=3", "add request=1 length=4 shared=4 max=2",
      "add request=2 length=1 shared=1 max=2 salt=1", "abort request=0", EACH}},
    /* Chunks, which end inside blocks and at their edges, beside full attention and alone. */
    {{"config blocks=5 size=2 tokens=2 seqs=2 length=7 groups=2 window2=3 chunks=2 caching=1",
      "add request=0 length=4 shared=4 max=3", "add request=1 length=5 shared=4 max=2", "add request=2 length=1 max=2",
      "abort request=0", "abort request=1", EACH}},
    {{"config blocks=4 size=1 tokens=3 seqs=3 length=6 window=2 chunks=1 caching=1 hashes=1 host=3 mode=2",
      "add request=0 length=2 shared=2 max=3", "add request=1 length=4 shared=4 max=2",
      "add request=2 length=1 shared=1 max=2 salt=1", "abort request=0", EACH}},
    /* Blocks of two sizes: the larger ones in a window, and with full attention. */
    {{"config blocks=5 host=3 size=1 tokens=3 seqs=2 length=6 groups=2 window2=3 shift2=1 caching=1",
      "add request=0 length=5 shared=6 max=1", "add request=1 length=3 shared=6 n=2 max=2",
      "add request=2 length=1 max=3", "abort request=0", "abort request=1", EACH}},
    {{"config blocks=6 host=4 size=1 tokens=4 seqs=2 length=7 groups=2 window2=2 shift=2 mode=2 caching=1",
      "add request=0 length=5 shared=7 max=2", "add request=1 length=6 shared=5 max=1", "add request=2 length=1 max=4",
      "abort request=0", "schedule cancel=2", EACH}},
    /* Beams. */
    {{"config blocks=4 host=4 size=2 tokens=3 seqs=3 length=5 caching=1",
      "add request=0 length=2 shared=2 n=2 max=3 beams=1", "add request=1 length=2 shared=2 max=2", "beams request=0",
      "beams request=0 choice=1", "beams request=0 choice=4", "finish request=0", "abort request=0", EACH}},
    /* Priorities. */
    {{"config blocks=3 size=1 tokens=2 seqs=2 length=3 policy=1 host=2", "add request=0 length=1 max=2 priority=2",
      "add request=1 length=2 max=1 priority=1", "add request=2 length=1 max=2", "abort request=0", "abort request=1",
      EACH}},
    /* Log-probabilities of prompts, one of them of several answers, in chunks. */
    {{"config blocks=5 host=4 size=1 tokens=2 seqs=3 length=5 mode=2 caching=1",
      "add request=0 length=3 shared=4 max=2 logprobs=1", "add request=1 length=4 shared=4 n=2 max=1 logprobs=2",
      "add request=2 length=2 shared=4 max=3", "finish request=1", "abort request=0", "collect damaged=2", EACH}},
    /* Ends in the second namespace, and by tokens. */
    {{"config blocks=3 size=2 tokens=3 seqs=2 length=5 namespace=2 caching=1",
      "add request=0 length=2 shared=3 max=3 eos=2", "add request=1 length=3 shared=3 max=2", "abort request=0",
      "collect damaged=1", EACH}},
    /* Cancelled steps: of prompts that others find in the prefix cache, of decodes, of forks and of swapped requests.
     */
    {{"config blocks=6 size=2 tokens=4 seqs=2 length=6 groups=2 window2=2 caching=1",
      "add request=0 length=5 shared=6 max=1 logprobs=1", "add request=1 length=4 shared=6 max=2",
      "add request=2 length=1 shared=6 max=3", "schedule cancel=1", "schedule cancel=2", EACH}},
    {{"config blocks=4 host=4 size=1 tokens=3 seqs=3 length=4 mode=2 caching=1",
      "add request=0 length=2 shared=4 n=2 max=2", "add request=1 length=3 shared=4 max=1",
      "add request=2 length=1 shared=4 max=3", "schedule cancel=1", "schedule cancel=3", EACH}},
    /* Runs, with drafts that are right up to a place: beside the prefix cache, stopping inside. */
    {{"config blocks=5 size=2 tokens=5 seqs=2 length=9 drafts=4 caching=1",
      "add request=0 length=2 shared=4 max=7 eos=2", "add request=1 length=4 shared=4 max=4 eos=1 seed=1",
      "abort request=0", "schedule drafts=3 right=1", "schedule drafts=4 right=4", "collect damaged=2", EACH}},
    /* In windows, whose blocks are of two sizes, the larger ones in the window or with full attention. */
    {{"config blocks=10 size=1 tokens=5 seqs=2 length=8 groups=2 window2=2 shift2=1 drafts=4 caching=1",
      "add request=0 length=2 shared=8 max=6", "add request=1 length=3 shared=8 max=3", "schedule drafts=4 right=1",
      "schedule drafts=2 right=2", EACH}},
    {{"config blocks=11 size=1 tokens=6 seqs=2 length=9 groups=2 window=3 shift2=2 chunks=1 drafts=4 caching=1",
      "add request=0 length=2 shared=8 max=7", "add request=1 length=3 shared=8 max=3", "schedule drafts=4",
      "schedule drafts=4 right=2", EACH}},
    /* Where blocks are few: preempted by recompute and by swap, and forked. */
    {{"config blocks=5 size=1 tokens=5 seqs=2 length=6 mode=1 drafts=4", "add request=0 length=1 max=5",
      "add request=1 length=2 max=3", "abort request=1", "schedule drafts=2", "schedule drafts=2 right=1", EACH}},
    {{"config blocks=6 host=6 size=1 tokens=5 seqs=3 length=5 mode=2 drafts=3 caching=1",
      "add request=0 length=2 n=2 max=3 shared=4", "add request=1 length=1 max=4 shared=4", "finish request=0",
      "schedule drafts=1", "schedule drafts=2 right=1", EACH}},
    /* Up to the end of a namespace. */
    {{"config blocks=6 size=2 tokens=4 seqs=3 length=8 namespace=4 drafts=4 caching=1",
      "add request=0 length=1 shared=3 max=7", "add request=1 length=2 shared=3 n=2 max=3", "schedule drafts=3 right=1",
      "schedule drafts=3 right=3", EACH}},
    /* Drafts of the device. */
    {{"config blocks=6 size=2 tokens=6 seqs=3 length=8 drafts=4 caching=1", "add request=0 length=2 shared=3 max=5",
      "add request=1 length=3 shared=3 n=2 max=3", "schedule drafts=2 right=1 device=1",
      "schedule drafts=3 right=3 device=1 cancel=1", EACH}},
    /* States: prompts that part, one after another and together, where slots are few and where there are some for
     * snapshots; before a generation prompt, and every two tokens. */
    {{"config blocks=6 size=1 tokens=4 seqs=2 length=5 caching=1 states=1", "add request=0 length=4 shared=2 max=1",
      "add request=1 length=4 shared=3 max=1", "add request=2 length=3 shared=4 max=2", "abort request=0",
      "abort request=1", EACH}},
    {{"config blocks=8 size=2 tokens=5 seqs=2 length=8 groups=2 window2=2 caching=1 states=5 interval=2",
      "add request=0 length=6 shared=6 max=2 state=3", "add request=1 length=7 shared=5 max=1",
      "add request=2 length=3 shared=4 max=4", "abort request=0", "schedule cancel=2", EACH}},
    /* Forked, preempted, and as beams. */
    {{"config blocks=6 host=4 size=1 tokens=4 seqs=3 length=5 caching=1 states=2 hostslots=2",
      "add request=0 length=2 shared=2 n=2 max=3", "add request=1 length=3 shared=2 max=2", "finish request=0",
      "abort request=1", "schedule cancel=1", EACH}},
    {{"config blocks=5 host=4 size=1 tokens=3 seqs=3 length=5 caching=1 states=1 hostslots=3",
      "add request=0 length=2 shared=2 n=2 max=3 beams=1", "add request=1 length=2 shared=2 max=2", "beams request=0",
      "beams request=0 choice=1", "beams request=0 choice=4", "finish request=0", EACH}},
    /* Runs of sequences with states, which end at boundaries and behind them. */
    {{"config blocks=6 size=2 tokens=6 seqs=2 length=9 drafts=4 caching=1 states=3",
      "add request=0 length=2 shared=4 max=7 eos=2", "add request=1 length=3 shared=4 max=4", "abort request=0",
      "schedule drafts=3 right=1", "schedule drafts=4 right=4 cancel=1", "schedule drafts=2 right=2", EACH}},
    /* Several batches: of a fork, of prompts in chunks, and of beams, where blocks are few. */
    {{"config blocks=8 size=2 tokens=4 seqs=3 length=8 caching=1 batches=2",
      "add request=0 length=3 shared=3 n=2 max=3", "add request=1 length=6 shared=3 max=2 eos=1", "abort request=0",
      "finish request=0 sequence=1", "schedule cancel=1", EACH}},
    {{"config blocks=5 host=4 size=1 tokens=2 seqs=3 length=4 mode=2 batches=3 grow=2",
      "add request=0 length=2 max=2 shared=2", "add request=1 length=1 max=3 shared=1",
      "add request=2 length=3 max=1 shared=1", "abort request=1", EACH}},
    {{"config blocks=5 host=4 size=1 tokens=3 seqs=3 length=5 caching=1 states=1 hostslots=3 batches=2",
      "add request=0 length=2 shared=2 n=2 max=3 beams=1", "add request=1 length=2 shared=2 max=2", "beams request=0",
      "beams request=0 choice=4", "finish request=0", EACH}},
    {{"config blocks=6 size=2 tokens=6 seqs=3 length=8 drafts=4 caching=1 batches=2",
      "add request=0 length=2 shared=3 max=5", "add request=1 length=3 shared=3 n=2 max=3", "schedule drafts=2 right=1",
      "schedule drafts=3 right=3 device=1", EACH}},
    /* Cancelled, and with a budget that has no room for all. */
    {{"config blocks=6 size=2 tokens=3 seqs=2 length=7 drafts=3 caching=1", "add request=0 length=1 shared=4 max=6",
      "add request=1 length=3 shared=4 max=4", "schedule drafts=2 cancel=1", "schedule drafts=2 right=1 cancel=2",
      "schedule drafts=2 right=1", EACH}},
};

/* Each state that was reached: by which operation, from which other. */
struct node {
    int32_t parent, operation, depth;
};

struct search {
    struct operation alphabet[24];
    int32_t num_operations;
    struct node *nodes;
    int32_t num_nodes, capacity;
    uint64_t *seen; /* an open hash table of states; 0: free */
    size_t num_places;
};

static bool note_state(struct search *s, uint64_t state)
{
    size_t at = state % s->num_places;
    for (; s->seen[at]; at = (at + 1) % s->num_places)
        if (s->seen[at] == state) return false;
    s->seen[at] = state;
    return true;
}

static void add_node(struct search *s, int32_t parent, int32_t operation, int32_t depth)
{
    if (s->num_nodes == s->capacity) {
        s->capacity = s->capacity ? 2 * s->capacity : 1024;
        s->nodes = realloc(s->nodes, (size_t)s->capacity * sizeof *s->nodes);
        assert_non_null(s->nodes);
    }
    s->nodes[s->num_nodes++] = (struct node){parent, operation, depth};
}

/* The list that leads to a node, and one operation more. */
static void list_to(const struct search *s, int32_t node, int32_t operation, struct record *r)
{
    r->count = s->nodes[node].depth + 2;
    r->list[0] = s->alphabet[0];
    r->list[r->count - 1] = s->alphabet[operation];
    for (int32_t i = r->count - 2; i > 0; i--, node = s->nodes[node].parent)
        r->list[i] = s->alphabet[s->nodes[node].operation];
}

/* Takes one operation from a node. A new state is run to its end, too. */
static enum status take_edge(struct search *s, struct record *r, int32_t node, int32_t operation)
{
    struct scheduler_model *m;
    list_to(s, node, operation, r);
    enum status status = scheduler_model_create(&r->list[0], &m, &r->err);
    if (status == STATUS_OK) scheduler_model_set_unchecked(m, true);
    for (int32_t i = 1; i < r->count && status == STATUS_OK; i++) {
        scheduler_model_set_unchecked(m, i < r->count - 1);
        status = scheduler_model_apply(m, &r->list[i], &r->err);
    }
    r->edges++;
    r->totals.operations++;
    if (status == STATUS_OK && note_state(s, scheduler_model_state(m))) {
        r->states++;
        add_node(s, node, operation, s->nodes[node].depth + 1);
        status = scheduler_model_finish(m, &r->err);
    }
    scheduler_model_destroy(m);
    if (status == STATUS_OK) r->err.text[0] = '\0';
    return status;
}

static void search_universe(struct record *r, const struct universe *u, int32_t depth)
{
    struct search s = {.num_places = (size_t)1 << 24};
    s.seen = calloc(s.num_places, sizeof *s.seen);
    assert_non_null(s.seen);
    for (; u->lines[s.num_operations]; s.num_operations++)
        if (!operation_parse(u->lines[s.num_operations], &s.alphabet[s.num_operations], &r->err)) return;
    add_node(&s, -1, 0, 0);
    enum status status = STATUS_OK;
    for (int32_t i = 0; i < s.num_nodes && s.nodes[i].depth < depth && status == STATUS_OK; i++)
        for (int32_t k = 1; k < s.num_operations && status == STATUS_OK; k++) {
            alarm(60);
            status = take_edge(&s, r, i, k);
        }
    alarm(0);
    free(s.nodes);
    free(s.seen);
}

static void run_exhaustive(struct record *r, int64_t depth, uint64_t seed)
{
    (void)seed;
    for (size_t i = 0; i < sizeof universes / sizeof *universes && !r->err.text[0]; i++) {
        const int64_t states = r->states, edges = r->edges;
        search_universe(r, &universes[i], (int32_t)depth);
        printf("universe %zu: %lld states, %lld operations\n", i + 1, (long long)(r->states - states),
               (long long)(r->edges - edges));
        fflush(stdout);
    }
}

/* ---- tests ---- */

static void test_random_operations(void **state)
{
    (void)state;
    struct record *r = open_shared(sizeof *r);
    const bool ok = run_in_child(r, run_random, SHORT_OPERATIONS, 1);
    print_totals(&r->totals);
    assert_true(ok);
    const struct scheduler_model_totals *t = &r->totals;
    assert_true(t->copies > 100 && t->collect_first > 100 && t->recomputed > 100 && t->swapped > 100);
    assert_true(t->swapped_in > 100 && t->hits > 100 && t->evictions > 100 && t->forks > 100 && t->beams > 100);
    assert_true(t->mixed_hits > 40 && t->mixed_swapped_in > 100);
    assert_true(t->window_blocks > 100 && t->namespace_changes > 50 && t->host_failures > 5);
    assert_true(t->targets > 1000 && t->cancelled > 100 && t->cancelled_second > 10);
    assert_true(t->runs > 1000 && t->device_runs > 500 && t->drafts > 1000 && t->accepted > 1000 && t->rollbacks > 100);
    assert_true(t->ends_in_runs > 50 && t->lost_runs > 50 && t->dropped > 1000);
    assert_true(t->snapshots > 1000 && t->snapshots_evicted > 1000 && t->snapshot_hits > 100 && t->recovered > 50);
    assert_true(t->awaited > 10 && t->kept > 1000 && t->state_runs > 500);
    assert_true(t->states_swapped_in > 100 && t->cuts > 1000);
    assert_true(t->stops > 100 && t->lengths > 100 && t->aborts > 100 && t->errors > 10);
    munmap(r, sizeof *r);
}

static void test_every_sequence_of_operations(void **state)
{
    (void)state;
    struct record *r = open_shared(sizeof *r);
    const bool ok = run_in_child(r, run_exhaustive, SHORT_DEPTH, 0);
    print_message("%lld states, %lld operations\n", (long long)r->states, (long long)r->edges);
    assert_true(ok);
    munmap(r, sizeof *r);
}

/* Lists that failed once. Beams that were preempted before they were chosen started again: one with nothing to compute,
 * in a step without a batch; the other in the middle of its prompt when its beams were chosen. The choice made the
 * third too long for its namespace, and it started in it all the same, with nothing to compute. After a cancelled step
 * its targets were collected with those of the next one; and a request was handed back while the step before named it.
 * Beams that were chosen while they were swapped entered host blocks into the prefix cache. A step swapped a request
 * out for another, which then failed, and made no copies, because it computed nothing. */
#define LONGEST_LIST 24
static const char *const failed_once[][LONGEST_LIST] = {
    {"config blocks=6 size=2 tokens=3 seqs=2 length=4 groups=2", "add max=0", "add request=1 length=3 beams=1",
     "schedule", "collect", "schedule", "collect", "schedule", "schedule"},
    {"config blocks=12 seqs=2 length=4 groups=4 chunked=0", "add max=3", "schedule", "add request=1 max=2 beams=1",
     "collect", "schedule", "collect", "schedule", "schedule"},
    {"config blocks=3 tokens=3 seqs=3 length=4 caching=1 namespace=1", "add length=2 n=2 max=2",
     "add request=1 max=2 beams=1", "schedule", "collect", "schedule"},
    {"config size=2", "add length=2 logprobs=1", "schedule cancel=1", "add"},
    {"config size=2", "add length=2", "add request=1", "schedule", "schedule cancel=1", "schedule cancel=1"},
    {"config blocks=20 host=24 size=2 tokens=7 seqs=8 length=18 caching=1 policy=1 hashes=2 grow=3",
     "add request=1 length=6 base=1 n=3 max=16 priority=1 beams=1",
     "add request=2 length=5 base=1 n=2 max=16 seed=1 logprobs=3",
     "schedule",
     "schedule",
     "collect",
     "schedule",
     "collect",
     "add request=3 length=5 shared=10 n=3 max=13 beams=1",
     "schedule",
     "collect",
     "schedule",
     "collect",
     "collect",
     "beams request=1 choice=8902",
     "beams request=3 choice=6391",
     "schedule",
     "collect",
     "schedule",
     "finish request=1 sequence=3"},
    {"config blocks=5 host=1 size=4 tokens=4 seqs=7 length=6 policy=1 namespace=1",
     "add max=3",
     "schedule",
     "collect",
     "add request=1 n=4 max=2",
     "add request=2 length=2 n=3 max=0 priority=1",
     "schedule",
     "collect",
     "schedule",
     "collect",
     "add request=40 length=3 n=3 max=3 beams=1",
     "add beams=1",
     "schedule",
     "collect",
     "schedule",
     "collect",
     "beams request=40",
     "schedule",
     "schedule",
     "collect",
     "beams request=40",
     "collect",
     "schedule"},
};

static void test_lists_that_failed_once(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof failed_once / sizeof *failed_once; i++) {
        struct operation list[LONGEST_LIST];
        struct error err;
        int32_t count = 0, failed;
        for (; count < LONGEST_LIST && failed_once[i][count]; count++)
            assert_true(operation_parse(failed_once[i][count], &list[count], &err));
        if (run_list(list, count, &failed, NULL, &err) != STATUS_OK)
            fail_msg("list %zu, operation %d: %s", i, failed, err.text);
    }
}

static void test_lists_are_printed_and_read(void **state)
{
    (void)state;
    struct generator g = {.random = {.state = 1}};
    struct error err;
    struct operation list[2] = {random_config(&g), random_add(&g, &list[0])}, read;
    for (int32_t i = 0; i < 2; i++) {
        char line[1000] = {0};
        FILE *out = fmemopen(line, sizeof line, "w");
        assert_non_null(out);
        operation_print(&list[i], out);
        fclose(out);
        assert_true(operation_parse(line, &read, &err));
        assert_memory_equal(&read, &list[i], sizeof read);
    }
    assert_false(operation_parse("schedules", &read, &err));
    assert_false(operation_parse("add length=3x", &read, &err));
    assert_string_equal(err.text, "\"length=3x\" is not a parameter of add");
}

/* Fails if it has an abort of request 3 or more, after an addition of 5 tokens or more. */
static bool has_both(const struct operation *list, int32_t count, void *user)
{
    bool added = false, both = false;
    ++*(int32_t *)user;
    for (int32_t i = 1; i < count; i++) {
        added = added || (list[i].kind == OPERATION_ADD && list[i].values[ADD_LENGTH] >= 5);
        both = both || (added && list[i].kind == OPERATION_ABORT && list[i].values[FINISH_REQUEST] >= 3);
    }
    return both;
}

static void test_a_list_is_made_as_short_as_possible(void **state)
{
    (void)state;
    struct generator g = {.random = {.state = 4}};
    struct operation list[101];
    list[0] = random_config(&g);
    for (int32_t i = 1; i <= 100; i++) {
        list[i] = i == 70 ? operation_of(OPERATION_ABORT) : random_add(&g, &list[0]);
        if (i == 40) list[i].values[ADD_LENGTH] = 9;
        if (i == 70) list[i].values[FINISH_REQUEST] = 40;
    }
    int32_t trials = 0;
    assert_int_equal(operation_list_shrink(list, 101, has_both, &trials), 3);
    assert_true(trials < 2000);
    struct operation add = operation_of(OPERATION_ADD), abort_it = operation_of(OPERATION_ABORT);
    add.values[ADD_LENGTH] = 5;
    abort_it.values[FINISH_REQUEST] = 3;
    assert_memory_equal(&list[1], &add, sizeof add);
    assert_memory_equal(&list[2], &abort_it, sizeof abort_it);
}

/* ---- on demand ---- */

static int replay(const char *path)
{
    static struct operation list[MAX_LIST];
    struct error err;
    char line[1000];
    int32_t count = 0, failed;
    FILE *in = fopen(path, "r");
    if (!in) {
        perror(path);
        return 2;
    }
    while (count < MAX_LIST && fgets(line, sizeof line, in)) {
        if (line[strspn(line, " \t\r\n")] == '\0' || line[0] == '#') continue;
        if (!operation_parse(line, &list[count++], &err)) {
            fprintf(stderr, "%s: %s\n", path, err.text);
            fclose(in);
            return 2;
        }
    }
    fclose(in);
    if (count == 0 || run_list(list, count, &failed, stdout, &err) == STATUS_OK) {
        printf("%d operations: nothing is wrong\n", count);
        return 0;
    }
    printf("%s %d: %s\n", failed == count ? "at the end of" : "operation", failed, err.text);
    if (failed < count) operation_print(&list[failed], stdout);
    return 1;
}

static int run_on_demand(int argc, char **argv)
{
    int64_t operations = 0, depth = 0;
    uint64_t seed = 1;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--replay")) return replay(argv[i + 1]);
        if (!strcmp(argv[i], "--shrink")) shrinks = !strcmp(argv[i + 1], "yes");
        if (!strcmp(argv[i], "--operations")) operations = atoll(argv[i + 1]);
        if (!strcmp(argv[i], "--depth")) depth = atoll(argv[i + 1]);
        if (!strcmp(argv[i], "--seed")) seed = strtoull(argv[i + 1], NULL, 10);
    }
    if (operations == 0 && depth == 0) {
        fprintf(stderr, "test_scheduler_model [--operations N [--seed S]] [--depth D] [--shrink no] [--replay FILE]\n");
        return 2;
    }
    struct record *r = open_shared(sizeof *r);
    bool ok = operations == 0 || run_in_child(r, run_random, operations, seed);
    if (ok && operations > 0) print_totals(&r->totals);
    if (ok && depth > 0) {
        ok = run_in_child(r, run_exhaustive, depth, seed);
        if (ok) printf("%lld states, %lld operations\n", (long long)r->states, (long long)r->edges);
    }
    return ok ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc > 1) return run_on_demand(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lists_are_printed_and_read), cmocka_unit_test(test_a_list_is_made_as_short_as_possible),
        cmocka_unit_test(test_lists_that_failed_once),     cmocka_unit_test(test_every_sequence_of_operations),
        cmocka_unit_test(test_random_operations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
