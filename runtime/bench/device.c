#include "runtime/bench/device.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/plural.h"
#include "base/random.h"
#include "base/pool.h"
#include "kernels/host_read.h"
#include "kernels/ranks.h"
#include "runtime/bench/plan.h"

enum { RUNS = 9, MIN_RUNS = 3, MAX_CALLS = 4096, PATTERN = 1000003, COPY_PASSES = 4, COPIES = 8, READ_PIECES = 64 };
static const int64_t BEYOND_CACHES = (int64_t)512 << 20, READ_BYTES = 32 << 20;
static const double RUN_SECONDS = 2e-3, CASE_SECONDS = 0.5;

static int compare_seconds(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts them. */
static double median(double *seconds, int count)
{
    qsort(seconds, (size_t)count, sizeof *seconds, compare_seconds);
    return seconds[count / 2];
}

enum status bench_host_read(int threads, struct bench_read *out, struct error *err)
{
    double seconds[READ_PIECES];
    const enum status status = host_read_time(threads, BEYOND_CACHES, READ_BYTES, seconds, READ_PIECES, err);
    if (status != STATUS_OK) return status;
    *out = (struct bench_read){.bytes = READ_BYTES, .seconds = median(seconds, READ_PIECES)};
    out->bytes_per_second = (double)out->bytes / out->seconds;
    return STATUS_OK;
}

/* ---- a device's memory ---- */

struct bench_device {
    struct backend *backend;
    struct bench_sizes sizes;
    uint8_t *pool, *fixed, *workspace;
    uint8_t *host;   /* [fixed_bytes] the fixed operands, before they are copied to `fixed` */
    uint8_t *pinned; /* host blocks of swap_blocks; NULL: no case swaps */
    int64_t pool_bytes, fixed_bytes, workspace_bytes, pinned_bytes;
    /* Of rank 0, if any case is of ranks: those of the others, and a thread for each rank. */
    struct bench_device *others[COLLECTIVE_MAX_RANKS - 1];
    int32_t num_others;
    struct pool *threads;
};

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void take_largest(struct bench_device *d, const struct bench_case *cases, int count,
                         struct workspace_query *query)
{
    d->pool_bytes = BEYOND_CACHES;
    for (int i = 0; i < count; i++) {
        struct bench_plan plan;
        bench_plan_make(&d->sizes, &cases[i], &plan);
        d->pool_bytes = larger(d->pool_bytes, plan.set_bytes);
        d->fixed_bytes = larger(d->fixed_bytes, plan.fixed_bytes);
        d->pinned_bytes = larger(d->pinned_bytes, plan.host_bytes);
        const enum bench_operation operation = cases[i].operation;
        const bool prefill = operation == BENCH_PAGED_ATTENTION_PREFILL || operation == BENCH_LATENT_ATTENTION_PREFILL,
                   of_experts = bench_plan_is_of_experts(operation);
        if (operation == BENCH_SHORT_CONV || operation == BENCH_HEADS_LINEAR ||
            (operation == BENCH_RECURRENCE && !cases[i].prompt))
            continue; /* they use no workspace */
        const int32_t length = prefill ? cases[i].count : cases[i].context;
        if (cases[i].count > query->max_num_tokens) query->max_num_tokens = cases[i].count;
        if (!prefill && !of_experts && !cases[i].prompt && cases[i].count > query->max_num_seqs)
            query->max_num_seqs = cases[i].count;
        if (length > query->max_model_len) query->max_model_len = length;
        query->max_in_features = larger(query->max_in_features, cases[i].in_features);
        const struct weight w = bench_plan_weight(&d->sizes, &cases[i]);
        if (weight_is_quantized(&w) && !of_experts)
            query->max_quantized_elements = larger(query->max_quantized_elements, w.out_features * w.in_features);
    }
}

/* Random numbers around 0 of standard deviation 0.3, since multiplying them takes more power than multiplying zeros.
 * They are bfloat16, which is the upper half of a float32 and, for these, an ordinary float16: they serve as any of the
 * three types. */
static void write_pattern(uint16_t *pattern)
{
    struct random random = {1};
    for (int i = 0; i < PATTERN; i++) {
        double sum = 0;
        for (int j = 0; j < 4; j++) sum += random_uniform(&random) - 0.5;
        pattern[i] = float_to_bf16((float)sum * 0.5f);
    }
}

static enum status fill_pool(struct bench_device *d, struct error *err)
{
    struct backend *b = d->backend;
    int64_t filled = PATTERN * (int64_t)sizeof(uint16_t);
    uint16_t *pattern = malloc((size_t)filled);
    if (!pattern)
        return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for %lld byte%s", (long long)filled,
                         plural(filled));
    write_pattern(pattern);
    b->copy(b, d->pool, pattern, filled, NULL);
    enum status status = b->stream_synchronize(b, NULL, err);
    free(pattern);
    for (; filled < d->pool_bytes; filled *= 2)
        b->copy(b, d->pool + filled, d->pool, filled < d->pool_bytes - filled ? filled : d->pool_bytes - filled, NULL);
    return status == STATUS_OK ? b->stream_synchronize(b, NULL, err) : status;
}

static enum status allocate(struct bench_device *d, enum memory_kind kind, int64_t bytes, uint8_t **out,
                            struct error *err)
{
    void *data = NULL;
    enum status status = bytes > 0 ? d->backend->memory_alloc(d->backend, kind, bytes, &data, err) : STATUS_OK;
    *out = data;
    return status;
}

static enum status allocate_all(struct bench_device *d, struct error *err)
{
    d->host = malloc((size_t)d->fixed_bytes);
    if (!d->host) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the operands of a benchmark");
    enum status status = allocate(d, MEMORY_DEVICE, d->pool_bytes, &d->pool, err);
    if (status == STATUS_OK) status = allocate(d, MEMORY_DEVICE, d->fixed_bytes, &d->fixed, err);
    if (status == STATUS_OK) status = allocate(d, MEMORY_DEVICE, d->workspace_bytes, &d->workspace, err);
    if (status == STATUS_OK) status = allocate(d, MEMORY_HOST_PINNED, d->pinned_bytes, &d->pinned, err);
    if (status == STATUS_OK) d->backend->workspace_set(d->backend, d->workspace, d->workspace_bytes);
    return status == STATUS_OK ? fill_pool(d, err) : status;
}

enum status bench_device_open(struct backend *b, const struct bench_sizes *sizes, const struct bench_case *cases,
                              int count, struct bench_device **out, struct error *err)
{
    struct bench_device *d = calloc(1, sizeof *d);
    *out = NULL;
    if (!d) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the operands of a benchmark");
    *d = (struct bench_device){.backend = b, .sizes = *sizes, .fixed_bytes = 1};
    struct workspace_query query = {.max_num_tokens = 1,
                                    .max_num_seqs = 1,
                                    .max_model_len = sizes->block_size,
                                    .num_heads = sizes->num_heads,
                                    .head_size = sizes->head_size,
                                    .block_size = sizes->block_size,
                                    .latent_rank = sizes->latent_rank,
                                    .max_in_features = sizes->hidden_size,
                                    .vocab_size = sizes->vocab_size,
                                    .num_recurrent_heads = sizes->recurrence.num_v_heads,
                                    .recurrent_state_size = (int64_t)sizes->recurrence.num_v_heads *
                                                            sizes->recurrence.v_size * sizes->recurrence.k_size};
    take_largest(d, cases, count, &query);
    d->workspace_bytes = larger(b->workspace_bytes(b, &query), 1);
    enum status status = allocate_all(d, err);
    if (status == STATUS_OK)
        *out = d;
    else
        bench_device_close(d);
    return status;
}

enum status bench_device_open_ranks(struct backend *const *ranks, int32_t num_ranks, const struct bench_sizes *sizes,
                                    const struct bench_case *cases, int count, struct bench_device **out,
                                    struct error *err)
{
    struct bench_case *of_ranks = malloc((size_t)count * sizeof *of_ranks);
    int num_of_ranks = 0;
    *out = NULL;
    if (!of_ranks) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the cases of a benchmark");
    for (int i = 0; i < count; i++)
        if (bench_plan_is_of_ranks(cases[i].operation)) of_ranks[num_of_ranks++] = cases[i];
    enum status status = bench_device_open(ranks[0], sizes, cases, count, out, err);
    struct bench_device *d = *out;
    for (int32_t r = 1; r < num_ranks && num_of_ranks > 0 && status == STATUS_OK; r++) {
        status = bench_device_open(ranks[r], sizes, of_ranks, num_of_ranks, &d->others[d->num_others], err);
        d->num_others += status == STATUS_OK;
    }
    if (status == STATUS_OK && d->num_others > 0) status = pool_open(num_ranks, &d->threads, err);
    free(of_ranks);
    if (status == STATUS_OK) return status;
    bench_device_close(d);
    *out = NULL;
    return status;
}

void bench_device_close(struct bench_device *d)
{
    if (!d) return;
    struct backend *b = d->backend;
    pool_close(d->threads);
    for (int32_t i = 0; i < d->num_others; i++) bench_device_close(d->others[i]);
    b->workspace_set(b, NULL, 0);
    if (d->pool) b->memory_free(b, MEMORY_DEVICE, d->pool, d->pool_bytes);
    if (d->fixed) b->memory_free(b, MEMORY_DEVICE, d->fixed, d->fixed_bytes);
    if (d->workspace) b->memory_free(b, MEMORY_DEVICE, d->workspace, d->workspace_bytes);
    if (d->pinned) b->memory_free(b, MEMORY_HOST_PINNED, d->pinned, d->pinned_bytes);
    free(d->host);
    free(d);
}

/* Seconds of one large copy: the least over some passes. */
static enum status time_copies(struct backend *b, void *to, const void *from, int64_t bytes, double *seconds,
                               struct error *err)
{
    enum status status = STATUS_OK;
    *seconds = 1e9;
    for (int pass = 0; pass < COPY_PASSES && status == STATUS_OK; pass++) {
        const double start = clock_seconds();
        for (int i = 0; i < COPIES; i++) b->copy(b, to, from, bytes, NULL);
        status = b->stream_synchronize(b, NULL, err);
        const double each = (clock_seconds() - start) / COPIES;
        if (each < *seconds) *seconds = each;
    }
    return status;
}

enum status bench_device_copy(struct bench_device *d, double *bytes_per_second, struct error *err)
{
    const int64_t half = d->pool_bytes / 2;
    double seconds;
    enum status status = time_copies(d->backend, d->pool + half, d->pool, half, &seconds, err);
    *bytes_per_second = 2 * (double)half / seconds;
    return status;
}

enum status bench_device_link(struct bench_device *d, double *bytes_per_second, struct error *err)
{
    double in, out;
    *bytes_per_second = 0;
    if (!d->pinned) return STATUS_OK;
    enum status status = time_copies(d->backend, d->pinned, d->pool, d->pinned_bytes, &out, err);
    if (status == STATUS_OK) status = time_copies(d->backend, d->pool, d->pinned, d->pinned_bytes, &in, err);
    if (status == STATUS_OK) *bytes_per_second = (double)d->pinned_bytes / (in < out ? in : out);
    return status;
}

/* ---- timing ---- */

/* A run of calls, each on the next copy of the operands. */
struct run {
    struct bench_device *d;
    const struct bench_case *c;
    const struct bench_plan *plan;
    int64_t copies, next;
    int calls;
    bool refused;        /* the backend does not do this */
    backend_graph graph; /* of all calls, or NULL */
};

static void make_calls(struct run *r)
{
    for (int i = 0; i < r->calls; i++, r->next++) {
        const struct bench_call call = {.sizes = &r->d->sizes,
                                        .c = r->c,
                                        .plan = r->plan,
                                        .number = r->next,
                                        .set = r->d->pool + r->next % r->copies * r->plan->set_bytes,
                                        .fixed = r->d->fixed,
                                        .host = r->d->pinned};
        r->refused |= !bench_plan_call(r->d->backend, &call);
    }
}

static enum status run_once(struct run *r, struct error *err)
{
    struct backend *b = r->d->backend;
    if (r->graph)
        b->graph_launch(b, r->graph);
    else
        make_calls(r);
    return b->stream_synchronize(b, NULL, err);
}

static enum status capture(struct run *r, struct error *err)
{
    struct backend *b = r->d->backend;
    enum status status = b->capture_begin(b, err);
    if (status != STATUS_OK) return status;
    make_calls(r);
    return b->capture_end(b, &r->graph, err);
}

/* The runs of all ranks that a case is of, of which each has a thread. */
struct runs {
    struct run of[COLLECTIVE_MAX_RANKS];
    int32_t count;
    struct pool *threads;
    enum status (*function)(struct run *r, struct error *err); /* that the threads call */
    enum status status[COLLECTIVE_MAX_RANKS];
    struct error errors[COLLECTIVE_MAX_RANKS];
};

static void call_run(void *runs, int64_t rank, int thread)
{
    struct runs *r = runs;
    (void)thread;
    r->status[rank] = r->function(&r->of[rank], &r->errors[rank]);
}

static enum status for_runs(struct runs *r, enum status (*function)(struct run *r, struct error *err),
                            struct error *err)
{
    if (r->count == 1) return function(&r->of[0], err);
    r->function = function;
    pool_run(r->threads, r->count, r->count, call_run, r);
    for (int32_t i = 0; i < r->count; i++)
        if (r->status[i] != STATUS_OK) return error_set(err, r->status[i], "rank %d: %s", i, r->errors[i].text);
    return STATUS_OK;
}

static enum status time_runs(struct runs *r, double *seconds, struct error *err)
{
    const double start = clock_seconds();
    const enum status status = for_runs(r, run_once, err);
    *seconds = clock_seconds() - start;
    return status;
}

/* Chooses as many calls as take milliseconds, so that reading the clock and waiting for the device do not count. */
static enum status choose_calls(struct runs *r, struct error *err)
{
    double seconds = 0;
    int calls = 1;
    for (int32_t i = 0; i < r->count; i++) r->of[i].calls = calls;
    enum status status = time_runs(r, &seconds, err); /* not counted: kernels are loaded on first use */
    while (status == STATUS_OK && !r->of[0].refused) {
        status = time_runs(r, &seconds, err);
        if (seconds >= RUN_SECONDS || calls >= MAX_CALLS) break;
        calls *= 2;
        for (int32_t i = 0; i < r->count; i++) r->of[i].calls = calls;
    }
    return status;
}

static enum status capture_runs(struct runs *r, struct error *err)
{
    double warm; /* the first launch of a graph costs more */
    if (!r->of[0].d->backend->capture_begin || r->of[0].calls == 1) return STATUS_OK;
    enum status status = for_runs(r, capture, err);
    return status == STATUS_OK ? time_runs(r, &warm, err) : status;
}

/* Sets the times of a run. */
static enum status median_run(struct runs *r, struct bench_time *out, struct error *err)
{
    double runs[RUNS], total = 0;
    int count = 0;
    enum status status = STATUS_OK;
    while (status == STATUS_OK && count < RUNS && (count < MIN_RUNS || total < CASE_SECONDS)) {
        status = time_runs(r, &runs[count], err);
        total += runs[count++];
    }
    out->seconds = median(runs, count); /* which sorts them */
    out->fastest = runs[0];
    out->slowest = runs[count - 1];
    return status;
}

/* False: NCCL is asked for and cannot be used. */
static bool choose_nccl(const struct bench_device *d, const struct bench_case *c)
{
    struct backend *ranks[COLLECTIVE_MAX_RANKS] = {d->backend};
    struct error ignored;
    const bool wanted = c->operation == BENCH_NCCL_ALL_REDUCE;
    if (d->num_others == 0) return !wanted;
    for (int32_t i = 0; i < d->num_others; i++) ranks[i + 1] = d->others[i]->backend;
    return backend_group_set_nccl_from(ranks, wanted ? 0 : INT64_MAX, &ignored) == STATUS_OK || !wanted;
}

static void prepare_run(struct run *r, struct bench_device *d, const struct bench_case *c,
                        const struct bench_plan *plan)
{
    *r = (struct run){.d = d, .c = c, .plan = plan, .copies = d->pool_bytes / plan->set_bytes};
    memset(d->host, 0, (size_t)d->fixed_bytes);
    bench_plan_write(&d->sizes, c, plan, d->host);
    d->backend->copy(d->backend, d->fixed, d->host, d->fixed_bytes, NULL);
}

enum status bench_device_run(struct bench_device *d, const struct bench_case *c, struct bench_time *out,
                             struct error *err)
{
    const bool of_ranks = bench_plan_is_of_ranks(c->operation);
    struct bench_plan plan;
    bench_plan_make(&d->sizes, c, &plan);
    *out = (struct bench_time){.bytes = plan.bytes, .link_bytes = plan.link_bytes, .operations = plan.operations};
    if (of_ranks && !choose_nccl(d, c)) return STATUS_OK;
    struct runs *r = calloc(1, sizeof *r);
    if (!r) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the runs of a benchmark");
    r->count = of_ranks ? 1 + d->num_others : 1;
    r->threads = d->threads;
    for (int32_t i = 0; i < r->count; i++) prepare_run(&r->of[i], i == 0 ? d : d->others[i - 1], c, &plan);
    const int *calls = &r->of[0].calls;
    enum status status = choose_calls(r, err);
    const bool taken = status == STATUS_OK && !r->of[0].refused;
    if (taken) status = capture_runs(r, err);
    if (taken && status == STATUS_OK) status = median_run(r, out, err);
    for (int32_t i = 0; i < r->count; i++)
        if (r->of[i].graph) d->backend->graph_destroy(r->of[i].d->backend, r->of[i].graph);
    out->seconds /= *calls;
    out->fastest /= *calls;
    out->slowest /= *calls;
    free(r);
    return status;
}
