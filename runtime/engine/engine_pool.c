#include "runtime/engine/engine_pool.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/plural.h"
#include "base/thread.h"
#include "kernels/backend.h"
#include "kernels/gpu_list.h"
#include "kernels/ranks.h"
#include "runtime/engine/piece_copy.h"
#include "runtime/engine/prefix_routes.h"

/* A token of a prompt that an engine has seen outweighs so many tokens of work that wait there: requests with a
 * common beginning stay together, until one engine has much more to do than another. */
enum { MATCHED_WEIGHT = 4 };

/* A request of a pool of several engines, from engine_pool_add to the delivery of its last piece. */
struct routed_request {
    struct worker *worker;
    answer_function *deliver; /* the caller's */
    void *user;
    int64_t prompt_work, output_work;       /* what is counted in worker->work: tokens to be computed */
    struct routed_request *previous, *next; /* in pool->requests */
};

struct piece_list {
    struct piece_copy *first, *last;
};

struct worker {
    struct engine_pool *pool;
    int number;
    struct engine_options options;
    struct log log;
    char device[128];
    struct engine *engine;
    pthread_t thread;
    bool has_thread;
    /* Of the thread alone: pieces of the step that runs, and whether one was lost. */
    struct piece_list made;
    bool no_memory;
    /* Of the caller alone: tokens of its requests that are not computed, as far as the caller knows. */
    int64_t work;
    /* Under the pool's lock. */
    bool opened;             /* the thread has tried to: `status` says how it went */
    bool busy;               /* the engine may have work */
    enum status status;      /* other than OK: it failed, and has ended */
    struct error err;        /* why */
    struct piece_list ready; /* pieces that were made and not delivered */
};

/* Limits that engines which open at the same time agree on, one time after the other. */
struct agreement {
    int64_t time;                /* that is next */
    int arrived;                 /* engines that came for it */
    struct common_limits least;  /* of those */
    struct common_limits agreed; /* last */
};

struct engine_pool {
    int size;
    struct worker *workers;          /* [size] */
    struct routed_request *requests; /* that are not finished */
    struct prefix_routes *routes;    /* NULL: no prefix is looked for */
    uint64_t seed, num_added;
    pthread_mutex_t lock;
    pthread_cond_t has_work; /* a worker became busy, or the pool ends */
    pthread_cond_t has_news; /* `news` or `woken` became true */
    bool news;               /* a worker opened its engine or ended a step, and the caller does not know it yet */
    bool woken;              /* engine_pool_wake was called, and no wait has returned for it yet */
    pthread_cond_t has_agreed;
    struct agreement agreement;
    bool failed; /* an engine did not open */
    enum log_level log_level;
    int ending_from; /* engines from this number on are to end; size: none is */
    bool leaving;    /* engine_leave is to be called */
};

/* ---- the thread of an engine ---- */

static void append(struct piece_list *list, struct piece_list *added)
{
    if (!added->first) return;
    if (list->first)
        list->last->next = added->first;
    else
        list->first = added->first;
    list->last = added->last;
    *added = (struct piece_list){0};
}

/* An answer_function: keeps a copy for the caller's thread. */
static void keep_piece(void *user, const struct answer_piece *piece)
{
    struct worker *w = ((struct routed_request *)user)->worker;
    struct piece_copy *copy = piece_copy_create(piece, user);
    struct piece_list one = {copy, copy};
    if (!copy) w->no_memory = true;
    append(&w->made, &one);
}

static void tell_caller(struct engine_pool *p)
{
    p->news = true;
    pthread_cond_signal(&p->has_news);
}

/* One step, without the lock. */
static void run_step(struct worker *w)
{
    struct engine_pool *p = w->pool;
    struct error err = {""};
    bool worked;
    enum status status = engine_step(w->engine, &worked, &err);
    if (status == STATUS_OK && w->no_memory)
        status = error_set(&err, STATUS_OUT_OF_MEMORY, "out of host memory for a piece of an answer");
    pthread_mutex_lock(&p->lock);
    append(&w->ready, &w->made);
    w->status = status;
    if (status != STATUS_OK) w->err = err;
    w->busy = status == STATUS_OK && engine_has_work(w->engine);
    tell_caller(p);
    pthread_mutex_unlock(&p->lock);
}

/* False: the thread is to end. */
static bool wait_for_work(struct worker *w)
{
    struct engine_pool *p = w->pool;
    pthread_mutex_lock(&p->lock);
    while (!w->busy && w->number < p->ending_from) pthread_cond_wait(&p->has_work, &p->lock);
    const bool ending = w->number >= p->ending_from;
    pthread_mutex_unlock(&p->lock);
    return !ending;
}

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* An agree_limits_function. */
static enum status agree(void *pool, struct common_limits *limits, struct error *err)
{
    struct engine_pool *p = pool;
    struct agreement *a = &p->agreement;
    pthread_mutex_lock(&p->lock);
    const int64_t time = a->time;
    if (a->arrived++ == 0) a->least = *limits;
    a->least.max_model_len = least(a->least.max_model_len, limits->max_model_len);
    a->least.max_num_seqs = least(a->least.max_num_seqs, limits->max_num_seqs);
    if (a->arrived == p->size) {
        a->agreed = a->least;
        a->arrived = 0;
        a->time++;
        pthread_cond_broadcast(&p->has_agreed);
    }
    while (a->time == time && !p->failed) pthread_cond_wait(&p->has_agreed, &p->lock);
    const bool ok = a->time != time;
    *limits = a->agreed; /* the next time waits for this engine, too */
    pthread_mutex_unlock(&p->lock);
    return ok ? STATUS_OK : error_set(err, STATUS_CANCELLED, "another engine failed");
}

/* Everything that a device does for an engine is done on this thread, from its opening to its end. */
static void *run_worker(void *context)
{
    struct worker *w = context;
    struct engine_pool *p = w->pool;
    struct error err = {""};
    const enum status status = engine_create(&w->options, &w->engine, &err);
    w->log.level = p->log_level;
    pthread_mutex_lock(&p->lock);
    w->status = status;
    w->err = err;
    w->opened = true;
    if (status != STATUS_OK) p->failed = true;
    pthread_cond_broadcast(&p->has_agreed);
    tell_caller(p);
    pthread_mutex_unlock(&p->lock);
    if (status != STATUS_OK) return NULL;
    while (wait_for_work(w)) run_step(w);
    if (p->leaving)
        engine_leave(w->engine);
    else
        engine_destroy(w->engine);
    return NULL;
}

/* ---- opening ---- */

static enum status out_of_memory(struct error *err)
{
    return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for several engines");
}

static enum status check_several(const struct engine_options *o, struct error *err)
{
    const int n = o->data_parallel_size;
    if (n > ENGINE_POOL_MAX)
        return error_set(err, STATUS_INVALID, "%d engines were asked for, but a process runs at most %d", n,
                         ENGINE_POOL_MAX);
    if (o->trace_file) return error_set(err, STATUS_INVALID, "a trace is of one engine, but %d were asked for", n);
    if (o->drafter)
        return error_set(err, STATUS_INVALID, "%s drafts are made for one engine, but %d were asked for",
                         o->drafter->name, n);
    return STATUS_OK;
}

/* Each engine needs a GPU for each of its ranks. */
static enum status check_count(const struct engine_options *o, const char *what, int num_gpus, bool exactly,
                               struct error *err)
{
    const int per_engine = engine_options_ranks(o), needed = o->data_parallel_size * per_engine;
    if (needed == num_gpus || (!exactly && needed < num_gpus)) return STATUS_OK;
    error_set(err, STATUS_INVALID, "%s %d GPU%s, but %d engines need %d", what, num_gpus, plural(num_gpus),
              o->data_parallel_size, needed);
    if (num_gpus % per_engine == 0) error_advise(err, ADVICE_SET, "data_parallel_size", "%d", num_gpus / per_engine);
    return STATUS_INVALID;
}

/* Gives a GPU, which is number `place` of all, to its engine. */
static void add_gpu(const struct engine_options *o, struct worker *workers, int place, int32_t gpu)
{
    const int rank = place % engine_options_ranks(o);
    struct worker *w = &workers[place / engine_options_ranks(o)];
    const size_t length = rank == 0 ? 0 : strlen(w->device);
    snprintf(w->device + length, sizeof w->device - length, "%s%d", rank == 0 ? "cuda:" : ",", gpu);
}

static enum status name_listed(const struct engine_options *o, struct worker *workers, struct error *err)
{
    const int32_t count = gpu_list_count(o->device);
    char what[64];
    snprintf(what, sizeof what, "the device '%.32s' is", o->device);
    if (check_count(o, what, count, true, err) != STATUS_OK) return STATUS_INVALID;
    for (int32_t i = 0; i < count; i++) {
        const int32_t gpu = gpu_list_at(o->device, i);
        for (int32_t k = 0; k < i; k++)
            if (gpu_list_at(o->device, k) == gpu)
                return error_set(err, STATUS_INVALID, "the device '%s' names GPU %d twice", o->device, gpu);
        add_gpu(o, workers, i, gpu);
    }
    return STATUS_OK;
}

static enum status name_devices(const struct engine_options *o, struct worker *workers, struct error *err)
{
    if (engine_options_ranks(o) > 1) backend_expect_ranks();
    const int num_gpus = backend_num_gpus(), n = o->data_parallel_size;
    if (gpu_list_count(o->device) > 0) return name_listed(o, workers, err);
    if (strcmp(o->device, "cpu") == 0 || num_gpus == 0) { /* opening "cuda" says why there is none */
        const char *device = strcmp(o->device, "auto") == 0 ? "cpu" : o->device;
        for (int i = 0; i < n; i++) snprintf(workers[i].device, sizeof workers[i].device, "%s", device);
        return STATUS_OK;
    }
    if (check_count(o, "this process sees", num_gpus, false, err) != STATUS_OK) return STATUS_INVALID;
    for (int i = 0; i < n * engine_options_ranks(o); i++) add_gpu(o, workers, i, i);
    return STATUS_OK;
}

/* The options of one engine of several. Where they open one after the other, the first one may choose lengths, and the
 * others then have the same. What is said at the start is said by the first one, as long as nobody asked for more. */
static void set_options(struct engine_pool *p, struct worker *w, const struct engine_options *o, bool together)
{
    const int threads = engine_options_threads(o), share = threads / p->size + (w->number < threads % p->size);
    w->options = *o;
    w->options.device = w->device;
    w->options.threads = share > 0 ? share : 1;
    w->options.host_share = p->size - w->number;
    if (o->log) {
        w->log = *o->log;
        w->options.log = &w->log;
        p->log_level = w->log.level;
    }
    if (together) w->options.agree = agree, w->options.agree_context = p;
    if (w->number == 0) return;
    if (w->log.level == LOG_WARNING) w->log.level = LOG_ERROR;
    if (together) return;
    const struct batch_limits *limits = engine_info(p->workers[0].engine)->limits;
    w->options.max_model_len = limits->max_model_len;
    w->options.max_num_seqs = limits->max_num_seqs;
}

static enum status name_worker(const struct worker *w, enum status status, struct error *err)
{
    char prefix[192];
    snprintf(prefix, sizeof prefix, "engine %d of %d, on %s", w->number + 1, w->pool->size, w->device);
    return error_prefix(err, status, prefix);
}

static enum status begin_opening(struct engine_pool *p, struct worker *w, struct error *err)
{
    w->has_thread = thread_start(&w->thread, run_worker, w) == 0;
    if (w->has_thread) return STATUS_OK;
    pthread_mutex_lock(&p->lock);
    p->failed = true;
    pthread_cond_broadcast(&p->has_agreed);
    pthread_mutex_unlock(&p->lock);
    return error_set(err, STATUS_OUT_OF_MEMORY, "the system gives no thread for an engine");
}

/* Waits until the first `count` engines have opened or failed. Of those that failed, the first is reported that did not
 * because another did. */
static enum status end_opening(struct engine_pool *p, int count, struct error *err)
{
    const struct worker *failed = NULL;
    pthread_mutex_lock(&p->lock);
    for (int i = 0; i < count; i++) {
        const struct worker *w = &p->workers[i];
        while (w->has_thread && !w->opened) pthread_cond_wait(&p->has_news, &p->lock);
        if (w->status != STATUS_OK && (!failed || failed->status == STATUS_CANCELLED)) failed = w;
    }
    p->news = false;
    pthread_mutex_unlock(&p->lock);
    if (!failed) return STATUS_OK;
    if (err) *err = failed->err;
    return name_worker(failed, failed->status, err);
}

/* All engines at the same time, if they have devices of their own; else one after the other, because each takes its
 * part of what is free. */
static enum status open_engines(struct engine_pool *p, const struct engine_options *o, struct error *err)
{
    const bool together = strncmp(p->workers[0].device, "cuda", 4) == 0;
    enum status status = STATUS_OK;
    for (int i = 0; i < p->size && status == STATUS_OK; i++) {
        set_options(p, &p->workers[i], o, together);
        status = begin_opening(p, &p->workers[i], err);
        if (status == STATUS_OK && !together) status = end_opening(p, i + 1, err);
    }
    if (!together) return status;
    const enum status opened = end_opening(p, p->size, status == STATUS_OK ? err : NULL);
    return status == STATUS_OK ? opened : status;
}

static enum status open_several(struct engine_pool *p, const struct engine_options *o, struct error *err)
{
    enum status status = check_several(o, err);
    if (status == STATUS_OK) status = name_devices(o, p->workers, err);
    if (status == STATUS_OK) status = open_engines(p, o, err);
    if (status != STATUS_OK || !o->enable_prefix_caching) return status;
    p->routes = prefix_routes_create(batch_largest_block_size(engine_pool_info(p)->limits));
    return p->routes ? STATUS_OK : out_of_memory(err);
}

static enum status open_one(struct engine_pool *p, const struct engine_options *o, struct error *err)
{
    struct worker *w = &p->workers[0];
    const enum status status = engine_create(o, &w->engine, err);
    if (status == STATUS_OK) snprintf(w->device, sizeof w->device, "%s", engine_info(w->engine)->device);
    return status;
}

enum status engine_pool_create(const struct engine_options *options, struct engine_pool **out, struct error *err)
{
    const int size = options->data_parallel_size;
    *out = NULL;
    if (size < 1) return error_set(err, STATUS_INVALID, "%d engines were asked for, but one is the least", size);
    struct engine_pool *p = calloc(1, sizeof *p);
    if (p) p->workers = calloc((size_t)size, sizeof *p->workers);
    if (!p || !p->workers) {
        free(p);
        return out_of_memory(err);
    }
    p->size = p->ending_from = size;
    p->seed = options->seed;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->has_work, NULL);
    pthread_cond_init(&p->has_news, NULL);
    pthread_cond_init(&p->has_agreed, NULL);
    for (int i = 0; i < size; i++) {
        p->workers[i].pool = p;
        p->workers[i].number = i;
    }
    const enum status status = size == 1 ? open_one(p, options, err) : open_several(p, options, err);
    if (status != STATUS_OK)
        engine_pool_destroy(p);
    else
        *out = p;
    return status;
}

/* ---- the end ---- */

static void free_pieces(struct piece_list *list)
{
    struct piece_copy *next;
    for (struct piece_copy *c = list->first; c; c = next) {
        next = c->next;
        free(c);
    }
}

/* Ends the engines from number `first` to `end` - 1. */
static void end_threads(struct engine_pool *p, int first, int end)
{
    pthread_mutex_lock(&p->lock);
    p->ending_from = first;
    pthread_cond_broadcast(&p->has_work);
    pthread_mutex_unlock(&p->lock);
    for (int i = first; i < end; i++)
        if (p->workers[i].has_thread) pthread_join(p->workers[i].thread, NULL);
}

/* The first engine is the last to end: the constraints of all are made with its vocabulary. */
static void end_all_threads(struct engine_pool *p)
{
    end_threads(p, 1, p->size);
    end_threads(p, 0, 1);
}

static void end_pool(struct engine_pool *p, bool leaving)
{
    if (!p) return;
    p->leaving = leaving;
    if (p->size > 1)
        end_all_threads(p);
    else if (leaving)
        engine_leave(p->workers[0].engine);
    else
        engine_destroy(p->workers[0].engine);
    for (int i = 0; i < p->size; i++) {
        free_pieces(&p->workers[i].made);
        free_pieces(&p->workers[i].ready);
    }
    for (struct routed_request *r = p->requests, *next; r; r = next) {
        next = r->next;
        free(r);
    }
    prefix_routes_free(p->routes);
    pthread_cond_destroy(&p->has_news);
    pthread_cond_destroy(&p->has_agreed);
    pthread_cond_destroy(&p->has_work);
    pthread_mutex_destroy(&p->lock);
    free(p->workers);
    free(p);
}

void engine_pool_destroy(struct engine_pool *p)
{
    end_pool(p, false);
}

void engine_pool_leave(struct engine_pool *p)
{
    end_pool(p, true);
}

/* ---- requests ---- */

/* Chooses the engine, and sets what the request adds to its work. */
static struct worker *route(const struct engine_pool *p, const struct engine_request *request,
                            struct routed_request *routed)
{
    int32_t matched[ENGINE_POOL_MAX] = {0};
    int best = 0;
    if (p->routes && request->prompt_len > 0)
        prefix_routes_find(p->routes, request->prompt, request->prompt_len, request->cache_salt, p->size, matched);
    for (int i = 1; i < p->size; i++)
        if (p->workers[i].work - (int64_t)MATCHED_WEIGHT * matched[i] <
            p->workers[best].work - (int64_t)MATCHED_WEIGHT * matched[best])
            best = i;
    const char *name;
    const int32_t room = engine_pool_info(p)->limits->max_model_len - request->prompt_len;
    const int32_t most = request->params->max_tokens, answer = most >= 0 && most < room ? most : room;
    routed->prompt_work = request->prompt_len - matched[best];
    routed->output_work = (int64_t)answer * sampling_params_num_sequences(request->params, &name);
    return &p->workers[best];
}

static void link_request(struct engine_pool *p, struct routed_request *r)
{
    r->next = p->requests;
    if (r->next) r->next->previous = r;
    p->requests = r;
    r->worker->work += r->prompt_work + r->output_work;
}

static void unlink_request(struct engine_pool *p, struct routed_request *r)
{
    if (r->previous)
        r->previous->next = r->next;
    else
        p->requests = r->next;
    if (r->next) r->next->previous = r->previous;
    r->worker->work -= r->prompt_work + r->output_work;
    free(r);
}

static uint64_t pool_id(const struct worker *w, uint64_t engines_id)
{
    return engines_id * (uint64_t)w->pool->size + (uint64_t)w->number;
}

static void wake(struct worker *w)
{
    pthread_mutex_lock(&w->pool->lock);
    w->busy = w->status == STATUS_OK;
    pthread_cond_broadcast(&w->pool->has_work);
    pthread_mutex_unlock(&w->pool->lock);
}

enum status engine_pool_add(struct engine_pool *p, const struct engine_request *request, uint64_t *id,
                            struct error *err)
{
    if (p->size == 1) return engine_add(p->workers[0].engine, request, id, err);
    struct engine_request passed = *request;
    struct sampling_params params = *request->params;
    struct routed_request *r = calloc(1, sizeof *r);
    uint64_t engines_id;
    if (!r) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for a request");
    r->deliver = request->deliver;
    r->user = request->user;
    r->worker = route(p, request, r);
    if (!params.has_seed) params.seed = engine_request_seed(p->seed, p->num_added + 1);
    params.has_seed = true;
    passed.params = &params;
    passed.deliver = keep_piece;
    passed.user = r;
    const enum status status = engine_add(r->worker->engine, &passed, &engines_id, err);
    if (status != STATUS_OK) {
        free(r);
        return status;
    }
    p->num_added++;
    if (id) *id = pool_id(r->worker, engines_id);
    if (p->routes)
        prefix_routes_note(p->routes, request->prompt, request->prompt_len, request->cache_salt, r->worker->number);
    link_request(p, r);
    wake(r->worker);
    return STATUS_OK;
}

enum status engine_pool_check(const struct engine_pool *p, const struct engine_request *request, struct error *err)
{
    return engine_check(p->workers[0].engine, request, err);
}

void engine_pool_abort(struct engine_pool *p, uint64_t id)
{
    engine_abort(p->workers[id % (uint64_t)p->size].engine, id / (uint64_t)p->size);
}

/* ---- the loop ---- */

/* The request's part of its engine's work shrinks: a first token says that the prompt is computed. */
static void count_piece(struct routed_request *r, const struct answer_piece *piece)
{
    const int64_t outputs = piece->num_tokens < r->output_work ? piece->num_tokens : r->output_work;
    const int64_t prompt = piece->num_tokens > 0 ? r->prompt_work : 0;
    r->output_work -= outputs;
    r->prompt_work -= prompt;
    r->worker->work -= outputs + prompt;
}

static void deliver(struct engine_pool *p, struct piece_copy *copy)
{
    struct routed_request *r = copy->user;
    copy->piece.request = pool_id(r->worker, copy->piece.request);
    count_piece(r, &copy->piece);
    r->deliver(r->user, &copy->piece);
    if (copy->piece.request_finished) unlink_request(p, r);
}

static void deliver_all(struct engine_pool *p, struct piece_list *pieces)
{
    struct piece_copy *next;
    for (struct piece_copy *c = pieces->first; c; c = next) {
        next = c->next;
        deliver(p, c);
        free(c);
    }
}

static bool any_busy(const struct engine_pool *p)
{
    bool any = false;
    for (int i = 0; i < p->size; i++) any = any || p->workers[i].busy;
    return any;
}

enum status engine_pool_step(struct engine_pool *p, bool *worked, struct error *err)
{
    if (p->size == 1) return engine_step(p->workers[0].engine, worked, err);
    struct piece_list pieces = {0};
    const struct worker *failed = NULL;
    enum status status = STATUS_OK;
    pthread_mutex_lock(&p->lock);
    while (!p->news && !p->woken && any_busy(p)) pthread_cond_wait(&p->has_news, &p->lock);
    *worked = p->news;
    p->news = p->woken = false;
    for (int i = 0; i < p->size; i++) {
        struct worker *w = &p->workers[i];
        append(&pieces, &w->ready);
        if (!failed && w->status != STATUS_OK) failed = w;
    }
    if (failed) status = failed->status;
    if (failed && err) *err = failed->err;
    pthread_mutex_unlock(&p->lock);
    deliver_all(p, &pieces);
    return failed ? name_worker(failed, status, err) : STATUS_OK;
}

bool engine_pool_has_work(struct engine_pool *p)
{
    if (p->size == 1) return engine_has_work(p->workers[0].engine);
    pthread_mutex_lock(&p->lock);
    const bool has_work = p->news || any_busy(p);
    pthread_mutex_unlock(&p->lock);
    return has_work;
}

void engine_pool_wait(struct engine_pool *p)
{
    if (p->size == 1) {
        engine_wait(p->workers[0].engine);
        return;
    }
    pthread_mutex_lock(&p->lock);
    while (!p->news && !p->woken && !any_busy(p)) pthread_cond_wait(&p->has_news, &p->lock);
    p->woken = false;
    pthread_mutex_unlock(&p->lock);
}

void engine_pool_wake(struct engine_pool *p)
{
    if (p->size == 1) {
        engine_wake(p->workers[0].engine);
        return;
    }
    pthread_mutex_lock(&p->lock);
    p->woken = true;
    pthread_cond_signal(&p->has_news);
    pthread_mutex_unlock(&p->lock);
}

int32_t engine_pool_num_computed(struct engine_pool *p, uint64_t id)
{
    return p->size == 1 ? engine_num_computed(p->workers[0].engine, id) : 0;
}

/* ---- facts ---- */

int engine_pool_size(const struct engine_pool *p)
{
    return p->size;
}

const char *engine_pool_device(const struct engine_pool *p, int number)
{
    return p->workers[number].device;
}

const struct engine_info *engine_pool_info(const struct engine_pool *p)
{
    return engine_info(p->workers[0].engine);
}

int64_t engine_pool_max_num_seqs(const struct engine_pool *p)
{
    return (int64_t)p->size * engine_pool_info(p)->limits->max_num_seqs;
}

static void add_counts(struct scheduler_stats *sum, const struct scheduler_stats *s)
{
    sum->num_running += s->num_running;
    sum->num_waiting += s->num_waiting;
    sum->num_swapped += s->num_swapped;
    sum->blocks_total += s->blocks_total;
    sum->blocks_in_use += s->blocks_in_use;
    sum->blocks_cached += s->blocks_cached;
    sum->blocks_free += s->blocks_free;
    sum->prefix_queries += s->prefix_queries;
    sum->prefix_hits += s->prefix_hits;
    sum->evictions += s->evictions;
    sum->host_blocks_in_use += s->host_blocks_in_use;
    sum->blocks_swapped_out += s->blocks_swapped_out;
    sum->blocks_swapped_in += s->blocks_swapped_in;
    sum->states_swapped_out += s->states_swapped_out;
    sum->states_swapped_in += s->states_swapped_in;
    sum->preemptions_recompute += s->preemptions_recompute;
    sum->preemptions_swap += s->preemptions_swap;
    sum->steps += s->steps;
    sum->tokens += s->tokens;
    sum->runs += s->runs;
    sum->drafts += s->drafts;
    sum->drafts_accepted += s->drafts_accepted;
    sum->state_slots_total += s->state_slots_total;
    sum->state_slots_in_use += s->state_slots_in_use;
    sum->state_slots_cached += s->state_slots_cached;
    sum->snapshots += s->snapshots;
    sum->snapshots_made += s->snapshots_made;
    sum->snapshots_evicted += s->snapshots_evicted;
    sum->snapshot_hits += s->snapshot_hits;
}

void engine_pool_stats(struct engine_pool *p, struct scheduler_stats *stats)
{
    engine_stats(p->workers[0].engine, stats);
    for (int i = 1; i < p->size; i++) {
        struct scheduler_stats one;
        engine_stats(p->workers[i].engine, &one);
        add_counts(stats, &one);
    }
}

int64_t engine_pool_blocks_unshared(struct engine_pool *p)
{
    int64_t blocks = 0;
    for (int i = 0; i < p->size; i++) blocks += engine_blocks_unshared(p->workers[i].engine);
    return blocks;
}

/* The threads wait: none of them steps. */
void engine_pool_reset_prefix_cache(struct engine_pool *p)
{
    for (int i = 0; i < p->size; i++) engine_reset_prefix_cache(p->workers[i].engine);
    if (p->routes) prefix_routes_clear(p->routes);
}
