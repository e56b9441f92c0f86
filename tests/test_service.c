/* The service of quire serve between HTTP, which is played here, and an engine: calls that are abandoned at any time,
 * pieces for which there is no memory, an engine that fails, and the end with calls that run. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <poll.h>
#include <pthread.h>

#include "base/clock.h"
#include "runtime/serve/service.h"
#include "tests/support/must.h"

enum { MAX_CALLS = 24 };

/* On other threads than the test's, where cmocka cannot end it. */
static void require(bool holds)
{
    if (!holds) abort();
}

/* ---- HTTP ---- */

struct http_exchange {
    int status; /* 0: not answered */
    bool begun, ended;
    struct text sent;
};

/* Exchanges end on the delivery's thread. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t has_ended = PTHREAD_COND_INITIALIZER;
static int num_ended;

const char *http_request_id(const struct http_exchange *x)
{
    (void)x;
    return "id";
}

const char *http_method(const struct http_exchange *x)
{
    (void)x;
    return "POST";
}

const char *http_peer(const struct http_exchange *x)
{
    (void)x;
    return "test";
}

const char *http_body(const struct http_exchange *x, size_t *length)
{
    (void)x;
    *length = 0;
    return "";
}

void http_add_header(struct http_exchange *x, const char *name, const char *value)
{
    (void)x, (void)name, (void)value;
}

void http_answer(struct http_exchange *x, int status, const char *type, const char *body, size_t length)
{
    (void)type;
    require(!x->begun && !x->ended && x->status == 0);
    x->status = status;
    text_append(&x->sent, body, length);
}

void http_begin(struct http_exchange *x, int status, const char *type)
{
    http_answer(x, status, type, "", 0);
    x->begun = true;
}

bool http_send(struct http_exchange *x, const char *bytes, size_t length)
{
    require(x->begun && !x->ended);
    return text_append(&x->sent, bytes, length);
}

void http_send_several_begin(struct http_server *s)
{
    (void)s;
}

void http_send_several_end(struct http_server *s)
{
    (void)s;
}

void http_end(struct http_exchange *x)
{
    pthread_mutex_lock(&lock);
    require(!x->ended);
    x->ended = true;
    num_ended++;
    pthread_cond_signal(&has_ended);
    pthread_mutex_unlock(&lock);
}

static void wait_for_ends(int count)
{
    pthread_mutex_lock(&lock);
    while (num_ended < count) pthread_cond_wait(&has_ended, &lock);
    pthread_mutex_unlock(&lock);
}

/* ---- faults, through the linker's --wrap ---- */

static atomic_int copies_until_fault, steps_until_fault; /* below 0: there is none */

struct piece_copy *__real_piece_copy_create(const struct answer_piece *piece, void *user);
struct piece_copy *__wrap_piece_copy_create(const struct answer_piece *piece, void *user);
struct piece_copy *__wrap_piece_copy_create(const struct answer_piece *piece, void *user)
{
    return atomic_fetch_sub(&copies_until_fault, 1) == 0 ? NULL : __real_piece_copy_create(piece, user);
}

enum status __real_engine_pool_step(struct engine_pool *p, bool *worked, struct error *err);
enum status __wrap_engine_pool_step(struct engine_pool *p, bool *worked, struct error *err);
enum status __wrap_engine_pool_step(struct engine_pool *p, bool *worked, struct error *err)
{
    if (atomic_fetch_sub(&steps_until_fault, 1) == 0)
        return error_set(err, STATUS_INTERNAL, "the device has stopped working");
    return __real_engine_pool_step(p, worked, err);
}

/* ---- a service ---- */

struct fixture {
    struct service *service;
    struct prompt_rules prompts;
    struct api_rules rules;
    struct metrics metrics;
    struct request_log log;
    struct call_context context;
    struct http_exchange exchanges[MAX_CALLS];
    struct call *calls[MAX_CALLS];
};

static const char *const model_names[] = {"guide", NULL};

static void start(struct fixture *f, int32_t max_num_seqs, int32_t max_waiting)
{
    struct error err = {""};
    static struct engine_options engine;
    const struct service_options options = {&engine, max_waiting};
    const struct prompt_options prompts = {.format = "jsonl"};
    *f = (struct fixture){0};
    num_ended = 0;
    copies_until_fault = steps_until_fault = -1;
    engine = engine_options_default();
    engine.model = QUIRE_GUIDE;
    engine.device = "cpu";
    engine.threads = 1;
    engine.kv_cache_space = 0.05;
    engine.max_num_seqs = max_num_seqs;
    metrics_init(&f->metrics);
    must(service_start(&options, &f->service, &err), &err);
    must(service_wait_open(f->service, &err), &err);
    must(prompt_rules_make(service_engine(f->service), &prompts, &f->prompts, &err), &err);
    f->rules = (struct api_rules){.prompts = &f->prompts, .model_names = model_names};
    f->context = (struct call_context){f->service, &f->metrics, &f->log};
    must(service_begin(f->service, NULL, &err), &err);
}

static void free_stopped(struct fixture *f)
{
    service_free(f->service);
    prompt_rules_free(&f->prompts);
    metrics_destroy(&f->metrics);
    for (int i = 0; i < MAX_CALLS; i++) text_free(&f->exchanges[i].sent);
}

static void stop(struct fixture *f)
{
    service_stop(f->service);
    free_stopped(f);
}

static void make_call(struct fixture *f, int i, int32_t max_tokens, bool stream)
{
    char body[256];
    struct api_refusal refusal;
    struct error err = {""};
    struct api_request request = {0};
    snprintf(body, sizeof body,
             "{\"prompt\": [\"Page %d\", \"Line %d\"], \"n\": 2, \"temperature\": 1, \"max_tokens\": %d, "
             "\"ignore_eos\": true, \"stream\": %s}",
             i, i, max_tokens, stream ? "true" : "false");
    if (!api_request_read(&f->rules, API_COMPLETION, body, strlen(body), &request, &refusal))
        fail_msg("%s", refusal.error.text);
    must(service_check_request(f->service, &request, &err), &err);
    must(call_create(&f->context, &f->rules, &f->exchanges[i], "/", clock_seconds(), &request, &f->calls[i], &err),
         &err);
}

static void submit(struct fixture *f, int i)
{
    struct api_refusal refusal;
    if (!service_submit(f->service, f->calls[i], &refusal)) fail_msg("%s", refusal.error.text);
}

static void check_whole(const struct http_exchange *x)
{
    assert_true(x->ended);
    assert_int_equal(x->status, 200);
    assert_non_null(strstr(x->sent.data, x->begun ? "data: [DONE]" : "\"usage\""));
    assert_null(strstr(x->sent.data, "\"error\""));
}

/* Nothing is left of earlier calls, and the next one is answered. */
static void check_serves(struct fixture *f, int i)
{
    struct scheduler_stats stats;
    int32_t num_waiting;
    const int ended = num_ended;
    make_call(f, i, 3, false);
    submit(f, i);
    wait_for_ends(ended + 1);
    check_whole(&f->exchanges[i]);
    service_stats(f->service, &stats, &num_waiting);
    assert_int_equal(stats.num_running + num_waiting, 0);
    assert_int_equal(stats.blocks_in_use, 0);
}

/* ---- tests ---- */

static void test_answers(void **state)
{
    (void)state;
    struct fixture f;
    start(&f, 8, 64);
    for (int i = 0; i < 12; i++) make_call(&f, i, 5 + i, i % 2 == 0);
    for (int i = 0; i < 12; i++) submit(&f, i);
    wait_for_ends(12);
    for (int i = 0; i < 12; i++) check_whole(&f.exchanges[i]);
    check_serves(&f, 12);
    stop(&f);
}

/* Clients go before their call is submitted, after it, and after it has begun; some are said to have gone twice. */
static void test_abandoned(void **state)
{
    (void)state;
    struct fixture f;
    start(&f, 8, 64);
    for (int i = 0; i < 12; i++) make_call(&f, i, 900, i % 2 == 0);
    for (int i = 0; i < 12; i++) {
        call_hold(f.calls[i]);
        if (i % 3 == 0) service_abandon(f.service, f.calls[i]);
        submit(&f, i);
        if (i % 3 == 1) service_abandon(f.service, f.calls[i]);
    }
    for (int i = 0; i < 12; i++) service_abandon(f.service, f.calls[i]);
    wait_for_ends(12);
    for (int i = 0; i < 12; i++) {
        assert_true(f.exchanges[i].ended);
        call_release(f.calls[i]);
    }
    check_serves(&f, 12);
    stop(&f);
}

/* Of each of the first pieces in turn: its call gets an error, the others their answers. */
static void test_no_memory_for_a_piece(void **state)
{
    (void)state;
    struct fixture f;
    int num_failed = 0;
    start(&f, 8, 64);
    for (int i = 0; i < 16; i += 2) {
        const int ended = num_ended;
        for (int k = 0; k < 2; k++) make_call(&f, i + k, 4, i % 4 == 0);
        atomic_store(&copies_until_fault, i * 2);
        for (int k = 0; k < 2; k++) submit(&f, i + k);
        wait_for_ends(ended + 2);
        for (int k = 0; k < 2; k++) {
            const struct http_exchange *x = &f.exchanges[i + k];
            if (strstr(x->sent.data, "out of host memory for a piece"))
                num_failed++;
            else
                check_whole(x);
        }
    }
    assert_int_equal(num_failed, 8);
    check_serves(&f, 16);
    stop(&f);
}

/* Every call ends with the sentence, and no further one is taken. */
static void test_engine_fails(void **state)
{
    (void)state;
    struct fixture f;
    struct error err = {""};
    struct api_refusal refusal;
    start(&f, 8, 64);
    for (int i = 0; i < 6; i++) make_call(&f, i, 900, i % 2 == 0);
    atomic_store(&steps_until_fault, 5);
    for (int i = 0; i < 5; i++) submit(&f, i);
    wait_for_ends(5);
    struct pollfd polled = {service_event(f.service), POLLIN, 0};
    assert_int_equal(poll(&polled, 1, 60000), 1);
    assert_true(service_failed(f.service, &err));
    assert_non_null(strstr(err.text, "the device has stopped"));
    for (int i = 0; i < 5; i++) {
        const struct http_exchange *x = &f.exchanges[i];
        assert_int_equal(x->status, x->begun ? 200 : 500);
        assert_non_null(strstr(x->sent.data, "the device has stopped"));
    }
    assert_false(service_submit(f.service, f.calls[5], &refusal));
    assert_int_equal(refusal.http_status, 503);
    call_release(f.calls[5]);
    stop(&f);
}

/* Calls that run, wait, and have just come end with the service. */
static void test_stop(void **state)
{
    (void)state;
    struct fixture f;
    start(&f, 4, 64);
    for (int i = 0; i < 6; i++) make_call(&f, i, 900, i % 2 == 0);
    for (int i = 0; i < 6; i++) submit(&f, i);
    service_stop(f.service);
    assert_int_equal(num_ended, 6);
    for (int i = 0; i < 6; i++) assert_true(f.exchanges[i].status != 0);
    free_stopped(&f);
}

static void test_drain(void **state)
{
    (void)state;
    struct fixture f;
    struct api_refusal refusal;
    start(&f, 4, 64);
    for (int i = 0; i < 3; i++) make_call(&f, i, 50, true);
    for (int i = 0; i < 2; i++) submit(&f, i);
    struct pollfd polled = {service_event(f.service), POLLIN, 0};
    assert_int_equal(poll(&polled, 1, 0), 0);
    service_drain(f.service);
    assert_false(service_submit(f.service, f.calls[2], &refusal));
    assert_int_equal(refusal.http_status, 503);
    call_release(f.calls[2]);
    assert_int_equal(poll(&polled, 1, 60000), 1);
    assert_int_equal(num_ended, 2);
    for (int i = 0; i < 2; i++) check_whole(&f.exchanges[i]);
    stop(&f);
}

/* Of four sequences that run and five answers that wait, each call takes four. */
static void test_room(void **state)
{
    (void)state;
    struct fixture f;
    struct api_refusal refusal;
    start(&f, 4, 5);
    for (int i = 0; i < 4; i++) make_call(&f, i, 900, false);
    for (int i = 0; i < 3; i++) submit(&f, i);
    assert_false(service_check_room(f.service, &refusal));
    assert_false(service_submit(f.service, f.calls[3], &refusal));
    assert_int_equal(refusal.http_status, 429);
    call_release(f.calls[3]);
    for (int i = 0; i < 3; i++) service_abandon(f.service, f.calls[i]);
    wait_for_ends(3);
    check_serves(&f, 4);
    stop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_abandoned),
        cmocka_unit_test(test_no_memory_for_a_piece),
        cmocka_unit_test(test_engine_fails),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
