#include "runtime/serve/service.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/thread.h"
#include "runtime/serve/delivery.h"

enum service_state {
    SERVICE_OPENING,  /* the engines are being opened */
    SERVICE_OPEN,     /* ... and are open */
    SERVICE_SERVING,  /* calls are taken */
    SERVICE_DRAINING, /* no more are */
    SERVICE_STOPPED   /* ... and those that were taken are ended */
};

struct service {
    struct service_options options;
    struct engine_options engine_options;
    volatile sig_atomic_t cancel; /* of the engines */
    struct engine_pool *pool;     /* the engine's thread opens and closes it */
    struct delivery delivery;
    bool delivers; /* it has been started */
    pthread_t thread;
    int event;
    int64_t capacity;        /* answers that run or wait */
    atomic_int num_requests; /* of the engine, from service_submit to their last piece */
    /* Of the engine's thread. */
    struct call *running;
    struct piece_list made; /* since pieces were last given to the delivery */
    /* Under the lock. */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* `state`, or one of the last three */
    enum service_state state;
    enum status status; /* of opening, or of the step that failed */
    struct error failure;
    struct call *first_new, *last_new, *first_gone;
    int64_t num_open, num_answers; /* calls that were submitted and have not ended; their answers */
    bool stops, has_stopped;       /* all calls are to end; they are, and no more are taken */
    bool leaves;                   /* the thread is to end */
};

static void notify(struct service *s)
{
    const uint64_t one = 1;
    while (write(s->event, &one, sizeof one) < 0 && errno == EINTR) continue;
}

/* ---- pieces, on the engine's thread ---- */

static void end_prompt(struct service *s, struct call_prompt *p)
{
    struct call *c = p->call;
    p->is_running = false;
    atomic_fetch_sub(&s->num_requests, 1);
    if (--c->num_running > 0) return;
    if (c->next) c->next->previous = c->previous;
    if (c->previous)
        c->previous->next = c->next;
    else
        s->running = c->next;
}

/* There is no memory for a copy: the prompt gets its spare piece in place of the last one. */
static struct piece_copy *lose_piece(struct service *s, struct call_prompt *p, const struct answer_piece *piece)
{
    static const struct error no_memory = {.text = "out of host memory for a piece of an answer"};
    if (!p->is_lost && !piece->request_finished) engine_pool_abort(s->pool, p->id);
    p->is_lost = true;
    if (!piece->request_finished) return NULL;
    p->spare = (struct piece_copy){.user = p,
                                   .piece = {.request = p->id,
                                             .text = "",
                                             .finish_reason = FINISH_ERROR,
                                             .error = &no_memory,
                                             .stop_token = -1,
                                             .request_finished = true}};
    return &p->spare;
}

/* An answer_function. */
static void keep_piece(void *user, const struct answer_piece *piece)
{
    struct call_prompt *p = user;
    struct service *s = p->call->context->service;
    struct piece_copy *copy = p->is_lost ? NULL : piece_copy_create(piece, p);
    if (!copy) copy = lose_piece(s, p, piece);
    if (copy) piece_list_append(&s->made, copy);
    if (piece->request_finished) end_prompt(s, p);
}

/* Ends a prompt that the engine does not have, or no longer has. */
static void fail_prompt(struct call_prompt *p, enum finish_reason reason, const struct error *why)
{
    const struct answer_piece piece = {
        .text = "", .finish_reason = reason, .error = why, .stop_token = -1, .request_finished = true};
    keep_piece(p, &piece);
}

/* ---- calls, on the engine's thread ---- */

static void start_prompt(struct service *s, struct call_prompt *p)
{
    struct engine_request request;
    struct error err = {""};
    if (atomic_load(&p->call->gone)) {
        fail_prompt(p, FINISH_ABORT, NULL);
        return;
    }
    enum status status = prompt_request(&p->call->request.prompts[p->number], &request, &err);
    request.deliver = keep_piece;
    request.user = p;
    if (status == STATUS_OK) status = engine_pool_add(s->pool, &request, &p->id, &err);
    if (status != STATUS_OK) fail_prompt(p, FINISH_ERROR, &err);
}

static void link_call(struct service *s, struct call *c)
{
    c->num_running = c->request.num_prompts;
    c->previous = NULL;
    c->next = s->running;
    if (c->next) c->next->previous = c;
    s->running = c;
}

/* The call lives until its pieces are given to the delivery. */
static void start_call(struct service *s, struct call *c)
{
    link_call(s, c);
    for (int32_t i = 0; i < c->request.num_prompts; i++) start_prompt(s, &c->prompts[i]);
}

static void abort_call(struct service *s, struct call *c)
{
    for (int32_t i = 0; c->num_running > 0 && i < c->request.num_prompts; i++)
        if (c->prompts[i].is_running) engine_pool_abort(s->pool, c->prompts[i].id);
}

/* What other threads have left. */
struct errands {
    struct call *first_new, *first_gone;
    bool stops;
};

static struct errands take_errands(struct service *s)
{
    pthread_mutex_lock(&s->lock);
    const struct errands taken = {s->first_new, s->first_gone, s->stops};
    s->first_new = s->last_new = s->first_gone = NULL;
    pthread_mutex_unlock(&s->lock);
    return taken;
}

/* A call is new before it can be gone, but the list of those that are gone may have it first: then it has no request,
 * and start_prompt sees that nobody reads it. */
static void run_errands(struct service *s, const struct errands *e)
{
    struct call *next;
    for (struct call *c = e->first_new; c; c = next) {
        next = c->next_new;
        start_call(s, c);
    }
    for (struct call *c = e->first_gone; c; c = next) {
        next = c->next_gone;
        abort_call(s, c);
        call_release(c);
    }
}

/* ---- the engine's thread ---- */

/* Steps until the thread is to end, or an engine fails. */
static enum status run_engine(struct service *s, struct error *err)
{
    enum status status = STATUS_OK;
    while (status == STATUS_OK) {
        const struct errands errands = take_errands(s);
        bool worked;
        run_errands(s, &errands);
        if (errands.stops) break;
        if (engine_pool_has_work(s->pool))
            status = engine_pool_step(s->pool, &worked, err);
        else if (!s->made.first) /* of calls that ended before they had begun */
            engine_pool_wait(s->pool);
        delivery_add(&s->delivery, &s->made);
    }
    return status;
}

static void fail_call(struct call *c, enum finish_reason reason, const struct error *why)
{
    for (int32_t i = 0, left = c->num_running; left > 0; i++) {
        if (!c->prompts[i].is_running) continue;
        left--;
        fail_prompt(&c->prompts[i], reason, why);
    }
}

/* No further piece comes from the engine: all calls end. */
static void end_calls(struct service *s, enum status status, const struct error *why)
{
    struct call *next;
    pthread_mutex_lock(&s->lock);
    s->state = SERVICE_STOPPED;
    s->status = status;
    s->failure = *why;
    pthread_mutex_unlock(&s->lock);
    const struct errands errands = take_errands(s);
    for (struct call *c = errands.first_new; c; c = next) {
        next = c->next_new;
        link_call(s, c);
    }
    for (struct call *c = errands.first_gone; c; c = next) {
        next = c->next_gone;
        call_release(c);
    }
    for (struct call *c = s->running; c; c = next) {
        next = c->next;
        fail_call(c, status == STATUS_OK ? FINISH_ABORT : FINISH_ERROR, why);
    }
    delivery_add(&s->delivery, &s->made);
    if (status != STATUS_OK) notify(s);
}

/* Opens the engines; returns whether calls are to be answered. */
static bool open_engines(struct service *s)
{
    struct error err = {""};
    const enum status status = engine_pool_create(&s->engine_options, &s->pool, &err);
    pthread_mutex_lock(&s->lock);
    s->status = status;
    s->failure = err;
    s->state = SERVICE_OPEN;
    pthread_cond_broadcast(&s->changed);
    while (s->state == SERVICE_OPEN && !s->stops) pthread_cond_wait(&s->changed, &s->lock);
    const bool serves = s->state != SERVICE_OPEN;
    pthread_mutex_unlock(&s->lock);
    return serves;
}

/* Everything that a device does is done on this thread. */
static void *run(void *context)
{
    struct service *s = context;
    struct error err = {""};
    if (open_engines(s)) end_calls(s, run_engine(s, &err), &err);
    pthread_mutex_lock(&s->lock);
    s->has_stopped = true;
    pthread_cond_broadcast(&s->changed);
    while (!s->leaves) pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
    engine_pool_leave(s->pool);
    return NULL;
}

/* ---- start ---- */

static void destroy_service(struct service *s)
{
    struct call *next;
    for (struct call *c = s->first_gone; c; c = next) {
        next = c->next_gone;
        call_release(c);
    }
    if (s->event >= 0) close(s->event);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

enum status service_start(const struct service_options *options, struct service **out, struct error *err)
{
    struct service *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the service");
    s->options = *options;
    s->engine_options = *options->engine;
    s->engine_options.cancel = &s->cancel;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    s->event = eventfd(0, EFD_CLOEXEC);
    if (s->event < 0 || thread_start(&s->thread, run, s) != 0) {
        destroy_service(s);
        return error_set(err, STATUS_OUT_OF_MEMORY, "the system gives no thread for the engine");
    }
    *out = s;
    return STATUS_OK;
}

enum status service_wait_open(struct service *s, struct error *err)
{
    pthread_mutex_lock(&s->lock);
    while (s->state == SERVICE_OPENING) pthread_cond_wait(&s->changed, &s->lock);
    const enum status status = s->status;
    if (status != STATUS_OK) *err = s->failure;
    pthread_mutex_unlock(&s->lock);
    return status;
}

enum status service_begin(struct service *s, struct http_server *http, struct error *err)
{
    s->capacity = engine_pool_max_num_seqs(s->pool) + s->options.max_waiting;
    s->delivery.http = http;
    const enum status status = delivery_start(&s->delivery, s, err);
    if (status != STATUS_OK) return status;
    s->delivers = true;
    pthread_mutex_lock(&s->lock);
    s->state = SERVICE_SERVING;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    return STATUS_OK;
}

/* ---- what any thread may call ---- */

static bool refuse(struct api_refusal *refusal, int http_status, const char *sentence)
{
    *refusal = (struct api_refusal){.http_status = http_status};
    error_set(&refusal->error, STATUS_INVALID, "%s", sentence);
    return false;
}

/* Under the lock. The last call that is taken may go beyond the capacity, so that every request can be taken at some
 * time. */
static bool has_room(const struct service *s, struct api_refusal *refusal)
{
    if (s->state == SERVICE_STOPPED) return refuse(refusal, 503, "the server has stopped");
    if (s->state == SERVICE_DRAINING) return refuse(refusal, 503, "the server is shutting down");
    if (s->state != SERVICE_SERVING) return refuse(refusal, 503, "the model is being loaded");
    if (s->num_answers < s->capacity) return true;
    return refuse(refusal, 429, "too many requests wait; try again later");
}

bool service_check_room(struct service *s, struct api_refusal *refusal)
{
    pthread_mutex_lock(&s->lock);
    const bool ok = has_room(s, refusal);
    pthread_mutex_unlock(&s->lock);
    return ok;
}

enum status service_check_request(const struct service *s, const struct api_request *request, struct error *err)
{
    struct engine_request r;
    enum status status = STATUS_OK;
    if ((int64_t)request->num_prompts * request->n > s->capacity)
        return error_set(err, STATUS_INVALID,
                         "the request asks for %lld answers, but at most %lld run and wait at once",
                         (long long)request->num_prompts * request->n, (long long)s->capacity);
    for (int32_t i = 0; i < request->num_prompts && status == STATUS_OK; i++) {
        status = prompt_request(&request->prompts[i], &r, err);
        if (status == STATUS_OK) status = engine_pool_check(s->pool, &r, err);
    }
    return status;
}

bool service_submit(struct service *s, struct call *c, struct api_refusal *refusal)
{
    pthread_mutex_lock(&s->lock);
    const bool ok = has_room(s, refusal);
    if (ok) {
        c->next_new = NULL;
        if (s->first_new)
            s->last_new->next_new = c;
        else
            s->first_new = c;
        s->last_new = c;
        s->num_open++;
        s->num_answers += c->num_answers;
        atomic_fetch_add(&s->num_requests, c->request.num_prompts);
    }
    pthread_mutex_unlock(&s->lock);
    if (ok) engine_pool_wake(s->pool);
    return ok;
}

void service_abandon(struct service *s, struct call *c)
{
    if (atomic_exchange(&c->gone, true)) return;
    call_hold(c);
    pthread_mutex_lock(&s->lock);
    c->next_gone = s->first_gone;
    s->first_gone = c;
    pthread_mutex_unlock(&s->lock);
    engine_pool_wake(s->pool);
}

const struct engine_info *service_engine(const struct service *s)
{
    return engine_pool_info(s->pool);
}

void service_stats(struct service *s, struct scheduler_stats *stats, int32_t *num_waiting)
{
    engine_pool_stats(s->pool, stats);
    const int32_t waiting = atomic_load(&s->num_requests) - stats->num_running;
    *num_waiting = waiting > 0 ? waiting : 0;
}

void service_ended(struct service *s, int32_t num_answers)
{
    pthread_mutex_lock(&s->lock);
    s->num_open--;
    s->num_answers -= num_answers;
    const bool drained = s->state == SERVICE_DRAINING && s->num_open == 0;
    pthread_mutex_unlock(&s->lock);
    if (drained) notify(s);
}

/* ---- the end ---- */

int service_event(const struct service *s)
{
    return s->event;
}

bool service_failed(struct service *s, struct error *err)
{
    pthread_mutex_lock(&s->lock);
    const bool failed = s->state == SERVICE_STOPPED && s->status != STATUS_OK;
    if (failed) *err = s->failure;
    pthread_mutex_unlock(&s->lock);
    return failed;
}

void service_drain(struct service *s)
{
    pthread_mutex_lock(&s->lock);
    if (s->state == SERVICE_SERVING) s->state = SERVICE_DRAINING;
    const bool drained = s->num_open == 0;
    pthread_mutex_unlock(&s->lock);
    if (drained) notify(s);
}

/* A step that the CPU computes ends at once. */
void service_stop(struct service *s)
{
    s->cancel = 1;
    pthread_mutex_lock(&s->lock);
    s->stops = true;
    pthread_cond_broadcast(&s->changed);
    if (s->state >= SERVICE_SERVING) engine_pool_wake(s->pool);
    while (!s->has_stopped) pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
    if (s->delivers) delivery_stop(&s->delivery);
}

void service_free(struct service *s)
{
    if (!s) return;
    pthread_mutex_lock(&s->lock);
    s->leaves = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    destroy_service(s);
}
