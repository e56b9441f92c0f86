#include "runtime/bench/bench.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include "base/clock.h"
#include "base/json.h"
#include "runtime/bench/trace.h"

struct scheduler_options {
    int32_t batch_size, num_prompts, prefix_len, num_waiting, num_blocks, num_iters;
    const char *filter;
    uint64_t seed;
    bool json;
};

enum { BLOCK_SIZE = 16, STEPS = 64 }; /* steps in one of num_iters */

struct measurement {
    const struct scheduler_options *options;
    struct random random;
    struct report report;
    json_t *operations;
    struct table table;
};

static struct batch_limits limits_of(int32_t max_num_seqs, int32_t max_model_len)
{
    return (struct batch_limits){.max_num_tokens = max_num_seqs > 8192 ? max_num_seqs : 8192,
                                 .max_num_seqs = max_num_seqs,
                                 .max_model_len = max_model_len,
                                 .block_size = BLOCK_SIZE,
                                 .num_groups = 1};
}

/* A row: the shortest and the median time of an operation, and the shortest for each of the `count` things in it. */
static void add_row(struct measurement *m, const char *name, const struct samples *seconds, double count,
                    const char *thing)
{
    const double best = samples_percentile(seconds, 0), median = samples_percentile(seconds, 50);
    char cells[3][64];
    report_format(cells[0], sizeof cells[0], 1e6 * best);
    report_format(cells[1], sizeof cells[1], 1e6 * median);
    report_format(cells[2], sizeof cells[2], 1e9 * best / count);
    table_row(&m->table, name, cells[0], cells[1], cells[2], thing);
    if (seconds->failed) m->table.failed = true;
    json_t *row = json_object();
    json_put_string(row, "operation", name);
    json_put_real(row, "microseconds", 1e6 * best);
    json_put_real(row, "median_microseconds", 1e6 * median);
    json_put_real(row, "slowest_microseconds", 1e6 * samples_percentile(seconds, 100));
    json_put_real(row, "count", count);
    json_put_real(row, "nanoseconds_each", 1e9 * best / count);
    json_array_append_new(m->operations, row);
}

/* The time of a step, as the mean of so many. */
static enum status time_steps(struct trace *t, int32_t num_steps, struct samples *seconds, struct error *err)
{
    enum status status = STATUS_OK;
    t->schedule_seconds = t->collect_seconds = 0;
    for (int32_t i = 0; i < num_steps && status == STATUS_OK; i++) status = trace_step(t, err);
    samples_add(seconds, (t->schedule_seconds + t->collect_seconds) / num_steps);
    return status;
}

static enum status add_random(struct measurement *m, struct trace *t, int32_t *prompt, int32_t prompt_len,
                              int32_t max_tokens, struct error *err)
{
    trace_draw(&m->random, prompt, prompt_len);
    return trace_add(t, prompt, prompt_len, max_tokens + 1, max_tokens, err); /* no eos */
}

/* ---- decodes ---- */

/* Prompts of 16 lengths, so that in each step blocks end in a 16th of the sequences: all steps do the same work, and
 * each is timed. */
static enum status time_decodes(struct measurement *m, int32_t count, int32_t in_flight, struct error *err)
{
    enum { SHORTEST = 112, LONGEST = SHORTEST + BLOCK_SIZE - 1 };
    const int32_t iters = m->options->num_iters, answer_len = STEPS * (iters + 2);
    const struct batch_limits limits = limits_of(count, LONGEST + answer_len);
    const int32_t num_blocks = count * (batch_max_blocks(&limits) + 1);
    int32_t prompt[LONGEST];
    struct trace t;
    struct samples seconds = {0};
    enum status status = trace_init(&t, &limits, num_blocks + num_blocks / 50 + 1, count, in_flight, err);
    if (status != STATUS_OK) return status;
    for (int32_t i = 0; i < count && status == STATUS_OK; i++)
        status = add_random(m, &t, prompt, SHORTEST + i % BLOCK_SIZE, answer_len, err);
    struct scheduler_stats stats = {.num_waiting = 1};
    while (stats.num_waiting > 0 && status == STATUS_OK) {
        status = trace_step(&t, err);
        scheduler_get_stats(t.scheduler, &stats);
    }
    for (int32_t i = 0; i < 2 && status == STATUS_OK; i++) status = trace_step(&t, err);
    for (int32_t i = 0; i < iters * STEPS && status == STATUS_OK; i++) status = time_steps(&t, 1, &seconds, err);
    if (status == STATUS_OK) {
        char name[64];
        snprintf(name, sizeof name, "%d decodes, %d in flight", count, in_flight);
        add_row(m, name, &seconds, count, "sequence");
    }
    samples_free(&seconds);
    trace_free(&t);
    return status;
}

static enum status measure_decodes(struct measurement *m, struct error *err)
{
    const int32_t given = m->options->batch_size, counts[] = {given ? given : 256, 4096};
    enum status status = STATUS_OK;
    for (int i = 0; i < (given ? 1 : 2); i++)
        for (int32_t in_flight = 1; in_flight <= 2 && status == STATUS_OK; in_flight++)
            status = time_decodes(m, counts[i], in_flight, err);
    return status;
}

/* ---- chat ---- */

enum { CHAT_SHORTEST = 100, CHAT_LONGEST = 1024, CHAT_SEATS = 256, CHAT_PREFIXES = 8, CHAT_PREFIX_STEP = 64 };

/* A prompt begins with one of 8 texts, of 64, 128 .. 512 tokens. Its answer ends with an eos. */
static enum status add_chat(struct measurement *m, struct trace *t, const int32_t *prefixes, struct error *err)
{
    int32_t prompt[CHAT_LONGEST];
    const int32_t length = (int32_t)random_between(&m->random, CHAT_SHORTEST, CHAT_LONGEST);
    const int32_t answer_len = (int32_t)random_between(&m->random, CHAT_SHORTEST, CHAT_LONGEST);
    const int32_t which = (int32_t)random_between(&m->random, 0, CHAT_PREFIXES - 1);
    const int32_t longest = (which + 1) * CHAT_PREFIX_STEP, shared = longest < length ? longest : length - 1;
    memcpy(prompt, prefixes + which * CHAT_PREFIXES * CHAT_PREFIX_STEP, (size_t)shared * sizeof *prompt);
    trace_draw(&m->random, prompt + shared, length - shared);
    return trace_add(t, prompt, length, answer_len, CHAT_LONGEST, err);
}

/* All requests wait from the start. A sequence has 40 blocks of the pool, less than its mean length in the end. */
static enum status run_chat(struct measurement *m, const int32_t *prefixes, struct samples *seconds,
                            struct scheduler_stats *stats, struct error *err)
{
    const int32_t seats = m->options->batch_size ? m->options->batch_size : CHAT_SEATS, count = m->options->num_prompts;
    const struct batch_limits limits = limits_of(seats, 2 * CHAT_LONGEST);
    struct trace t;
    enum status status = trace_init(&t, &limits, 40 * seats + batch_max_blocks(&limits), count, 1, err);
    if (status != STATUS_OK) return status;
    m->random.state = m->options->seed; /* every time the same requests */
    for (int32_t i = 0; i < count && status == STATUS_OK; i++) status = add_chat(m, &t, prefixes, err);
    if (status == STATUS_OK) status = trace_finish(&t, err);
    scheduler_get_stats(t.scheduler, stats);
    samples_add(seconds, (t.schedule_seconds + t.collect_seconds) / (double)t.steps);
    trace_free(&t);
    return status;
}

static void report_chat(struct measurement *m, const struct scheduler_stats *s)
{
    struct report *r = &m->report;
    report_integer(r, "num_prompts", "chat: requests", m->options->num_prompts);
    report_integer(r, "steps", "chat: steps", s->steps);
    report_integer(r, "preemptions", "chat: preemptions", s->preemptions_recompute + s->preemptions_swap);
    report_number(r, "hit_rate", "chat: tokens of prompts found in the cache",
                  100 * (double)s->prefix_hits / (double)s->prefix_queries, "%");
    report_number(r, "tokens_per_step", "chat: tokens a step", (double)s->tokens / (double)s->steps, "");
}

static enum status measure_chat(struct measurement *m, struct error *err)
{
    int32_t prefixes[CHAT_PREFIXES * CHAT_PREFIXES * CHAT_PREFIX_STEP];
    struct samples seconds = {0};
    struct scheduler_stats stats;
    enum status status = STATUS_OK;
    trace_draw(&m->random, prefixes, sizeof prefixes / sizeof prefixes[0]);
    for (int32_t i = 0; i < m->options->num_iters && status == STATUS_OK; i++)
        status = run_chat(m, prefixes, &seconds, &stats, err);
    if (status == STATUS_OK) {
        add_row(m, "chat, a step", &seconds, 1, "step");
        report_chat(m, &stats);
    }
    samples_free(&seconds);
    return status;
}

/* ---- a long prompt ---- */

struct long_prompt {
    struct samples admission, release, decode, waiting;
};

/* The prompt is in the cache; another request with it is admitted, ends, and gives the blocks back. */
static enum status time_admission(struct trace *t, const int32_t *prompt, int32_t prompt_len, struct long_prompt *p,
                                  struct error *err)
{
    enum status status = trace_add(t, prompt, prompt_len, 1, 1, err);
    t->schedule_seconds = t->collect_seconds = 0;
    if (status == STATUS_OK) status = trace_step(t, err);
    samples_add(&p->admission, t->schedule_seconds);
    samples_add(&p->release, t->collect_seconds);
    return status;
}

/* A request with the prompt decodes; then another one waits that shares half of it and does not fit. */
static enum status time_waiting(struct measurement *m, struct trace *t, int32_t *prompt, int32_t prompt_len,
                                struct long_prompt *p, struct error *err)
{
    struct scheduler_stats stats;
    enum status status = trace_add(t, prompt, prompt_len, 3 * STEPS, 3 * STEPS, err);
    if (status == STATUS_OK) status = trace_step(t, err);
    if (status == STATUS_OK) status = time_steps(t, STEPS, &p->decode, err);
    trace_draw(&m->random, prompt + prompt_len / 2, prompt_len - prompt_len / 2);
    if (status == STATUS_OK) status = trace_add(t, prompt, prompt_len, 1, 1, err);
    if (status == STATUS_OK) status = trace_step(t, err); /* looks its prefix up */
    if (status == STATUS_OK) status = time_steps(t, STEPS, &p->waiting, err);
    scheduler_get_stats(t->scheduler, &stats);
    if (status == STATUS_OK && (stats.num_running != 1 || stats.num_waiting != 1))
        status = error_set(err, STATUS_INTERNAL, "%d requests run and %d wait, but it should be one each",
                           stats.num_running, stats.num_waiting);
    return status;
}

/* The pool has a tenth more blocks than the prompt, and some for its answer. */
static enum status run_long_prompt(struct measurement *m, int32_t *prompt, struct long_prompt *p, struct error *err)
{
    const int32_t length = m->options->prefix_len;
    const struct batch_limits limits = limits_of(CHAT_SEATS, length + 4 * STEPS);
    const int32_t blocks = length / BLOCK_SIZE;
    struct trace t;
    enum status status = trace_init(&t, &limits, blocks + blocks / 10 + 3 * STEPS / BLOCK_SIZE + 1, 4, 1, err);
    if (status != STATUS_OK) return status;
    status = add_random(m, &t, prompt, length, 1, err);
    if (status == STATUS_OK) status = trace_finish(&t, err);
    if (status == STATUS_OK) status = time_admission(&t, prompt, length, p, err);
    if (status == STATUS_OK) status = time_waiting(m, &t, prompt, length, p, err);
    trace_free(&t);
    return status;
}

static enum status measure_long_prompt(struct measurement *m, struct error *err)
{
    const int32_t length = m->options->prefix_len, blocks = (length + BLOCK_SIZE - 1) / BLOCK_SIZE;
    struct long_prompt p = {0};
    enum status status = STATUS_OK;
    int32_t *prompt = malloc((size_t)length * sizeof *prompt);
    if (!prompt)
        return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for a prompt of %d token%s", length,
                         plural(length));
    for (int32_t i = 0; i < m->options->num_iters && status == STATUS_OK; i++)
        status = run_long_prompt(m, prompt, &p, err);
    if (status == STATUS_OK) {
        char name[64];
        snprintf(name, sizeof name, "admission of %d cached tokens", length);
        add_row(m, name, &p.admission, blocks, "block");
        add_row(m, "its end", &p.release, blocks, "block");
        add_row(m, "one decode of that length", &p.decode, 1, "step");
        add_row(m, "and a request that has to wait", &p.waiting, 1, "step");
    }
    free(prompt);
    samples_free(&p.admission);
    samples_free(&p.release);
    samples_free(&p.decode);
    samples_free(&p.waiting);
    return status;
}

/* ---- the queue ---- */

struct queue_times {
    struct samples add, abort, hand_back;
};

static void shuffle(struct random *random, struct request **requests, int32_t count)
{
    for (int32_t i = count - 1; i > 0; i--) {
        const int32_t other = (int32_t)random_between(random, 0, i);
        struct request *request = requests[i];
        requests[i] = requests[other];
        requests[other] = request;
    }
}

static enum status run_queue(struct measurement *m, struct request **requests, struct queue_times *times,
                             struct error *err)
{
    const int32_t count = m->options->num_waiting, prompt = 1;
    const struct batch_limits limits = limits_of(CHAT_SEATS, BLOCK_SIZE);
    struct trace t;
    enum status status = trace_init(&t, &limits, 1, count, 1, err);
    if (status != STATUS_OK) return status;
    for (int32_t i = 0; i < count && status == STATUS_OK; i++)
        status = trace_create(&t, &prompt, 1, 1, 1, &requests[i], err);
    if (status == STATUS_OK) {
        double now = clock_seconds(), start = now;
        for (int32_t i = 0; i < count; i++) scheduler_add(t.scheduler, requests[i]);
        samples_add(&times->add, (now = clock_seconds()) - start);
        shuffle(&m->random, requests, count);
        start = clock_seconds();
        for (int32_t i = 0; i < count; i++) scheduler_abort(t.scheduler, requests[i]);
        samples_add(&times->abort, (now = clock_seconds()) - start);
        start = now;
        while (scheduler_next_finished(t.scheduler)) continue;
        samples_add(&times->hand_back, clock_seconds() - start);
    }
    trace_free(&t);
    return status;
}

static enum status measure_queue(struct measurement *m, struct error *err)
{
    const int32_t count = m->options->num_waiting;
    struct queue_times times = {0};
    enum status status = STATUS_OK;
    struct request **requests = calloc((size_t)count, sizeof *requests);
    if (!requests)
        return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for %d request%s", count, plural(count));
    for (int32_t i = 0; i < m->options->num_iters && status == STATUS_OK; i++)
        status = run_queue(m, requests, &times, err);
    if (status == STATUS_OK) {
        char name[64];
        snprintf(name, sizeof name, "%d requests are added", count);
        add_row(m, name, &times.add, count, "request");
        add_row(m, "and aborted in random order", &times.abort, count, "request");
        add_row(m, "and handed back", &times.hand_back, count, "request");
    }
    free(requests);
    samples_free(&times.add);
    samples_free(&times.abort);
    samples_free(&times.hand_back);
    return status;
}

/* ---- start-up and memory ---- */

/* Bytes that are allocated now, also those that were never written to; NaN where nothing counts them. */
static double allocated_bytes(void)
{
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    const struct mallinfo2 info = mallinfo2();
    return (double)info.uordblks + (double)info.hblkhd;
#else
    return NAN;
#endif
}

/* Creates what one engine has. *bytes gets the memory that it takes. */
static enum status start(int32_t max_num_seqs, int32_t num_blocks, struct samples *seconds, double *bytes,
                         struct error *err)
{
    const struct batch_limits limits = limits_of(max_num_seqs, CHAT_LONGEST);
    struct trace t;
    const double before = allocated_bytes(), start = clock_seconds();
    enum status status = trace_init(&t, &limits, num_blocks, 1, 1, err);
    if (seconds) samples_add(seconds, clock_seconds() - start);
    if (status != STATUS_OK) return status;
    *bytes = allocated_bytes() - before;
    trace_free(&t);
    return STATUS_OK;
}

static enum status measure_pool(struct measurement *m, struct error *err)
{
    const int32_t count = m->options->num_blocks;
    struct samples seconds = {0};
    double all = 0, one = 0;
    enum status status = start(CHAT_SEATS, 1, NULL, &one, err);
    for (int32_t i = 0; i < m->options->num_iters && status == STATUS_OK; i++)
        status = start(CHAT_SEATS, count, &seconds, &all, err);
    if (status == STATUS_OK) {
        char name[64];
        snprintf(name, sizeof name, "start with %d blocks", count);
        add_row(m, name, &seconds, count, "block");
        report_number(&m->report, "bytes_per_block", "a block of the pool and the prefix cache", (all - one) / count,
                      "bytes");
    }
    samples_free(&seconds);
    return status;
}

/* Measures a request of n sequences, each with room for so many tokens. */
static enum status request_bytes(int32_t n, int32_t num_tokens, double *bytes, struct error *err)
{
    enum { COUNT = 1000 };
    const struct batch_limits limits = limits_of(CHAT_SEATS, 2 * CHAT_LONGEST);
    struct request *requests[COUNT];
    struct sampling_params params = sampling_params_default();
    const int32_t prompt = 1;
    int32_t made = 0;
    enum status status = STATUS_OK;
    params.n = n;
    params.max_tokens = num_tokens - 1;
    const double before = allocated_bytes();
    for (; made < COUNT && status == STATUS_OK; made += status == STATUS_OK)
        status = request_create(&params, &prompt, 1, &limits, &requests[made], err);
    *bytes = (allocated_bytes() - before) / COUNT;
    while (made > 0) request_destroy(requests[--made]);
    return status;
}

static enum status measure_memory(struct measurement *m, struct error *err)
{
    enum { MORE = 1024 };
    double one, two, tokens, seats, more;
    enum status status = request_bytes(1, BLOCK_SIZE, &one, err);
    if (status == STATUS_OK) status = request_bytes(2, BLOCK_SIZE, &two, err);
    if (status == STATUS_OK) status = request_bytes(1, BLOCK_SIZE + MORE, &tokens, err);
    if (status == STATUS_OK) status = start(MORE, 1, NULL, &seats, err);
    if (status == STATUS_OK) status = start(2 * MORE, 1, NULL, &more, err);
    if (status != STATUS_OK) return status;
    report_number(&m->report, "bytes_per_request", "a request of 16 tokens", one, "bytes");
    report_number(&m->report, "bytes_per_sequence", "each further sequence of it", two - one, "bytes");
    report_number(&m->report, "bytes_per_token", "each further token of a sequence", (tokens - one) / MORE, "bytes");
    report_number(&m->report, "bytes_per_seat", "each further sequence that can run at once", (more - seats) / MORE,
                  "bytes");
    return STATUS_OK;
}

/* ---- the command ---- */

/* The pool comes first: after other large allocations were freed, malloc may clear memory where it maps new pages now.
 */
static const struct part {
    const char *name;
    enum status (*measure)(struct measurement *m, struct error *err);
} parts[] = {
    {"pool", measure_pool},   {"decodes", measure_decodes},
    {"chat", measure_chat},   {"long prompt", measure_long_prompt},
    {"queue", measure_queue}, {"memory", measure_memory},
};
enum { NUM_PARTS = sizeof parts / sizeof parts[0] };

static enum status measure(struct measurement *m, struct error *err)
{
    const char *filter = m->options->filter;
    int measured = 0;
    enum status status = STATUS_OK;
    for (int i = 0; i < NUM_PARTS && status == STATUS_OK; i++) {
        if (filter && !strstr(parts[i].name, filter)) continue;
        status = parts[i].measure(m, err);
        measured++;
    }
    if (measured == 0)
        return error_set(
            err, STATUS_INVALID,
            "no part contains '%s' (--filter); they are pool, decodes, chat, long prompt, queue and memory", filter);
    return status;
}

/* The rows, then the numbers. */
static bool print_tables(struct measurement *m)
{
    const bool rows = json_array_size(m->operations) > 0;
    if (m->options->json) {
        json_object_set(m->report.json, "operations", m->operations);
        return report_print(&m->report, true, stdout);
    }
    if (rows) printf("%s\n\n", m->report.title);
    if (rows && !table_print(&m->table, stdout)) return false;
    if (m->report.numbers.num_cells == 0) return true;
    if (rows) return putchar('\n') != EOF && table_print(&m->report.numbers, stdout);
    return report_print(&m->report, false, stdout);
}

static enum status run_scheduler(const struct scheduler_options *o, struct error *err)
{
    struct measurement m = {
        .options = o, .random = {o->seed}, .operations = json_array(), .table = {.columns = "lrrrl"}};
    report_init(&m.report);
    report_string(&m.report, "benchmark", "scheduler");
    report_integer(&m.report, "block_size", NULL, BLOCK_SIZE);
    report_integer(&m.report, "num_iters", NULL, o->num_iters);
    snprintf(m.report.title, sizeof m.report.title,
             "scheduler: blocks of %d tokens, prefix caching, the shortest and the median of %d times", BLOCK_SIZE,
             o->num_iters);
    bench_report_machine(&m.report, NULL);
    table_row(&m.table, "", "us", "median", "ns each", "");
    enum status status = measure(&m, err);
    if (status == STATUS_OK && !print_tables(&m))
        status = error_set(err, STATUS_IO, "cannot write the results to standard output");
    json_decref(m.operations);
    table_free(&m.table);
    report_free(&m.report);
    return status;
}

static void add_flags(const struct command *c, struct option_table *table, void *options)
{
    (void)c;
    struct scheduler_options *o = options;
    *o = (struct scheduler_options){
        .num_prompts = 1024, .prefix_len = 131072, .num_waiting = 40000, .num_blocks = 10000000, .num_iters = 20};
    struct option_spec specs[] = {
        bench_count_flag("batch-size", &o->batch_size, 1, 1 << 16,
                         "Sequences that run at once. Default: 256 and 4096 decodes, 256 sequences of the chat."),
        bench_count_flag("num-prompts", &o->num_prompts, 1, 1 << 20, "Requests of the chat. Default: 1024."),
        bench_count_flag("prefix-len", &o->prefix_len, 1024, 1 << 24, "Tokens of the long prompt. Default: 131072."),
        bench_count_flag("num-waiting", &o->num_waiting, 1, 1 << 24, "Requests in the queue. Default: 40000."),
        bench_count_flag("num-blocks", &o->num_blocks, 1, 1 << 28,
                         "Blocks of the pool at start-up. Default: 10000000."),
        bench_count_flag("num-iters", &o->num_iters, 1, 100, "Times to measure. Default: 20."),
        {"filter", OPTION_STRING, &o->filter, "TEXT",
         .help = "Only the parts with this text in their names: pool, decodes, chat, long prompt, queue, memory."},
        {"seed", OPTION_UINT64, &o->seed, "N", .help = "Of the tokens and lengths that are drawn. Default: 0."},
        {"json", OPTION_SWITCH, &o->json, .help = "Print one JSON object."},
    };
    specs[0].heading = "Scheduler:";
    option_table_add(table, specs, sizeof specs / sizeof specs[0]);
}

static int run(void *options)
{
    struct error err;
    return run_scheduler(options, &err) == STATUS_OK ? EXIT_STATUS_OK
                                                     : command_fail("bench", &err, EXIT_STATUS_FAILURE);
}

const struct command bench_scheduler = {
    .name = "scheduler",
    .summary = "the scheduler alone, without a model: time of a step, and memory",
    .usage = "bench scheduler [flags]",
    .options_size = sizeof(struct scheduler_options),
    .add = add_flags,
    .run = run,
};
