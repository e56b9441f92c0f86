/* quire serve: its paths, who may ask, many clients at once, clients that go away, overload, and how it ends. What
 * bodies may ask for and what answers look like is in test_api, and how HTTP is spoken in test_http. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "tests/support/program.h"
#include "tests/support/serve_program.h"
#include "tests/support/temp_folder.h"

static const char *const NO_FLAGS[] = {NULL};
static const char CHAT[] = "/v1/chat/completions", COMPLETIONS[] = "/v1/completions";
#define STREAM(n, max_tokens)                                                                                          \
    "{\"prompt\": \"A block\", \"temperature\": 1, \"n\": " n ", \"max_tokens\": " max_tokens                          \
    ", \"ignore_eos\": true, \"stream\": true}"
/* It runs for longer than a test needs. */
static const char LONG[] = STREAM("16", "1000");

static const char *text_of(const struct text *t)
{
    return t->length ? t->data : "";
}

/* The string that a path of keys and indices leads to. */
static const char *string_at(const json_t *object, const char *first, const char *second, const char *third)
{
    const json_t *choice = json_array_get(json_object_get(object, first), 0);
    const json_t *value = json_object_get(choice, second);
    if (third) value = json_object_get(value, third);
    if (!json_is_string(value)) fail_msg("there is no %s.%s.%s", first, second, third ? third : "");
    return json_string_value(value);
}

static void check_error(const struct serve_program *s, const char *path, const char *body, int status,
                        const char *sentence)
{
    json_t *answer = serve_program_ask(s, path, body, status);
    const char *message = json_string_value(json_object_get(json_object_get(answer, "error"), "message"));
    if (!message || !strstr(message, sentence)) fail_msg("%s: %s", path, message ? message : "no message");
    json_decref(answer);
}

/* Asks until `name` has the value; for a bounded time. */
static void wait_for_metric(const struct serve_program *s, const char *name, double value)
{
    for (int i = 0; i < 6000; i++) {
        if (serve_program_metric(s, name) == value) return;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    fail_msg("%s is %g, not %g", name, serve_program_metric(s, name), value);
}

/* ---- one server for most tests ---- */

static int start_server(void **state)
{
    static struct serve_program s;
    static const char *const flags[] = {"--served-model-name", "first", "--served-model-name", "second", NULL};
    serve_program_start(&s, flags);
    *state = &s;
    return 0;
}

static int stop_server(void **state)
{
    serve_program_stop(*state);
    return 0;
}

static void test_facts(void **state)
{
    const struct serve_program *s = *state;
    struct http_reply r;
    json_t *models = serve_program_ask(s, "/v1/models", NULL, 200);
    assert_int_equal(json_array_size(json_object_get(models, "data")), 2);
    assert_string_equal(string_at(models, "data", "id", NULL), "first");
    json_decref(models);
    json_t *second = serve_program_ask(s, "/v1/models/second", NULL, 200);
    assert_string_equal(json_string_value(json_object_get(second, "id")), "second");
    assert_int_equal(json_require_integer(second, "max_model_len"), 2048);
    json_decref(second);
    check_error(s, "/v1/models/third", NULL, 404, "no model");
    json_decref(serve_program_ask(s, "/version", NULL, 200));
    json_t *stats = serve_program_ask(s, "/stats", NULL, 200);
    const json_t *blocks = json_object_get(stats, "blocks");
    assert_int_equal(json_require_integer(blocks, "in_use") + json_require_integer(blocks, "cached") +
                         json_require_integer(blocks, "free"),
                     json_require_integer(blocks, "total"));
    json_decref(stats);
    serve_program_get(s, "/health", "", NULL, &r);
    assert_int_equal(r.status, 200);
    assert_int_equal(r.body.length, 0);
    http_reply_free(&r);
    serve_program_get(s, "/", "", NULL, &r);
    assert_int_equal(r.status, 200);
    assert_int_equal(strncmp(r.body.data, "<!DOCTYPE html>", 15), 0);
    http_reply_free(&r);
}

static void test_refused(void **state)
{
    const struct serve_program *s = *state;
    struct http_reply r;
    char allow[32];
    check_error(s, "/nothing", NULL, 404, "nothing at this path");
    check_error(s, CHAT, "{\"messages\": [", 400, "");
    check_error(s, CHAT, "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"temprature\": 1}", 400,
                "temprature");
    check_error(s, COMPLETIONS, "{\"model\": \"third\", \"prompt\": \"a\"}", 404, "third");
    check_error(s, COMPLETIONS, "{\"prompt\": \"a\", \"max_tokens\": 5, \"temperature\": -1}", 400, "temperature");
    check_error(s, COMPLETIONS, "{\"prompt\": [4096]}", 400, "4095");
    check_error(s, COMPLETIONS, "{\"prompt\": \"a\", \"priority\": 3}", 400, "priority");
    check_error(s, "/tokenize", "{\"prompt\": 3}", 400, "prompt must be a string");
    check_error(s, "/detokenize", "{\"tokens\": [-1]}", 400, "a token id in tokens must be");
    serve_program_get(s, CHAT, "", NULL, &r);
    assert_int_equal(r.status, 405);
    assert_true(http_reply_header(&r, "Allow", allow, sizeof allow));
    assert_string_equal(allow, "POST");
    http_reply_free(&r);
}

/* A prompt that leaves no room in max_model_len. */
static void test_long_prompt(void **state)
{
    struct text body = {0};
    text_append_string(&body, "{\"prompt\": [5");
    for (int i = 0; i < 2100; i++) text_append_string(&body, ", 5");
    text_append_string(&body, "]}");
    check_error(*state, COMPLETIONS, body.data, 400, "2048");
    text_free(&body);
}

static void test_tokens(void **state)
{
    const struct serve_program *s = *state;
    json_t *ids =
        serve_program_ask(s, "/tokenize", "{\"prompt\": \"A block table\", \"return_token_strs\": true}", 200);
    json_t *list = json_object_get(ids, "tokens");
    assert_int_equal(json_array_size(list), json_require_integer(ids, "count"));
    assert_int_equal(json_array_size(json_object_get(ids, "token_strs")), json_array_size(list));
    assert_int_equal(json_require_integer(ids, "max_model_len"), 2048);
    json_t *body = json_pack("{s:O}", "tokens", list);
    char *text = json_dumps(body, JSON_COMPACT);
    json_t *back = serve_program_ask(s, "/detokenize", text, 200);
    assert_non_null(strstr(json_string_value(json_object_get(back, "prompt")), "A block table"));
    json_t *chat = serve_program_ask(s, "/tokenize", "{\"messages\": [{\"role\": \"user\", \"content\": \"A\"}]}", 200);
    assert_true(json_require_integer(chat, "count") > 2);
    json_decref(chat);
    json_decref(back);
    json_decref(body);
    json_decref(ids);
    free(text);
}

/* ---- answers ---- */

/* The text of a stream of completions. */
static void append_stream(const struct http_reply *r, struct text *out)
{
    static const char data[] = "data: ";
    for (const char *at = text_of(&r->body); (at = strstr(at, data)) != NULL; at++) {
        const char *line = at + sizeof data - 1;
        json_t *chunk = json_loadb(line, strcspn(line, "\n"), 0, NULL);
        const json_t *choice = json_array_get(json_object_get(chunk, "choices"), 0);
        const json_t *text = json_object_get(choice, "text");
        if (text) text_append(out, json_string_value(text), json_string_length(text));
        json_decref(chunk);
    }
    text_append_string(out, "");
}

static void make_body(char *out, size_t size, int number, bool stream)
{
    snprintf(out, size, "{\"prompt\": \"Page %d of the book is about\", \"temperature\": 0, \"max_tokens\": %d%s}",
             number, 8 + number % 7, stream ? ", \"stream\": true" : "");
}

/* The answer of quire generate to the same prompt. */
static void test_answer_of_generate(void **state)
{
    struct program p;
    const char *const argv[] = {QUIRE_EXECUTABLE,
                                "generate",
                                "--model",
                                QUIRE_GUIDE,
                                "--kv-cache-space",
                                "0.1",
                                "--temperature",
                                "0",
                                "--max-tokens",
                                "11",
                                "--no-chat",
                                "--quiet",
                                "--",
                                "Page 3 of the book is about",
                                NULL};
    char body[256];
    make_body(body, sizeof body, 3, false);
    program_run(&p, argv, NULL);
    json_t *expected = program_json(&p), *answer = serve_program_ask(*state, COMPLETIONS, body, 200);
    assert_string_equal(string_at(answer, "choices", "text", NULL),
                        json_string_value(json_object_get(expected, "text")));
    assert_string_equal(json_string_value(json_object_get(answer, "model")), "first");
    json_decref(expected);
    json_decref(answer);
    program_free(&p);
}

/* Each of many clients, half of which get streams, has the answer to its own prompt. */
static void test_many_clients(void **state)
{
    enum { CLIENTS = 40 };
    const struct serve_program *s = *state;
    static struct http_client clients[CLIENTS];
    struct text alone[CLIENTS] = {{0}};
    char body[256];
    for (int i = 0; i < CLIENTS; i++) {
        make_body(body, sizeof body, i, false);
        json_t *answer = serve_program_ask(s, COMPLETIONS, body, 200);
        text_append_string(&alone[i], string_at(answer, "choices", "text", NULL));
        json_decref(answer);
    }
    for (int i = 0; i < CLIENTS; i++) {
        http_client_open(&clients[i], s->url);
        make_body(body, sizeof body, i, i % 2 == 1);
        http_client_send(&clients[i], "POST", COMPLETIONS, "", body);
    }
    for (int i = 0; i < CLIENTS; i++) {
        struct http_reply r;
        struct text text = {0};
        http_client_read(&clients[i], false, &r);
        assert_int_equal(r.status, 200);
        json_t *answer = i % 2 == 1 ? NULL : json_loadb(r.body.data, r.body.length, 0, NULL);
        if (answer)
            text_append_string(&text, string_at(answer, "choices", "text", NULL));
        else
            append_stream(&r, &text);
        assert_string_equal(text.data, alone[i].data);
        json_decref(answer);
        text_free(&text);
        text_free(&alone[i]);
        http_reply_free(&r);
        http_client_close(&clients[i]);
    }
}

/* Several prompts of one request, each with several answers. */
static void test_several_prompts(void **state)
{
    json_t *answer = serve_program_ask(
        *state, COMPLETIONS,
        "{\"prompt\": [\"One\", \"Two\", \"Three\"], \"temperature\": 1, \"n\": 2, \"max_tokens\": 3}", 200);
    assert_int_equal(json_array_size(json_object_get(answer, "choices")), 6);
    json_decref(answer);
    check_error(*state, COMPLETIONS, "{\"prompt\": \"One\", \"temperature\": 1, \"n\": 17}", 400, "n is 17");
}

static void test_request_id(void **state)
{
    struct http_reply r;
    char id[64];
    serve_program_get(*state, COMPLETIONS, "X-Request-Id: mine\r\n", "{\"prompt\": \"a\", \"max_tokens\": 1}", &r);
    assert_int_equal(r.status, 200);
    assert_true(http_reply_header(&r, "X-Request-Id", id, sizeof id));
    assert_string_equal(id, "mine");
    assert_non_null(strstr(r.body.data, "cmpl-mine"));
    http_reply_free(&r);
}

/* ---- clients that go away ---- */

static void open_stream(struct http_client *c, const struct serve_program *s, const char *body)
{
    http_client_open(c, s->url);
    http_client_send(c, "POST", COMPLETIONS, "", body);
    assert_true(http_client_fill(c, 400)); /* it has begun */
}

#define ABORTED "vllm:request_success_total{model_name=\"first\",engine=\"0\",finished_reason=\"abort\"}"

static void test_client_goes(void **state)
{
    const struct serve_program *s = *state;
    struct http_client c;
    const double before = serve_program_metric(s, ABORTED);
    open_stream(&c, s, LONG);
    assert_true(serve_program_metric(s, "vllm:num_requests_running") == 1);
    http_client_close(&c);
    wait_for_metric(s, "vllm:num_requests_running", 0);
    wait_for_metric(s, ABORTED, before + 16);
}

static void test_metrics(void **state)
{
    const struct serve_program *s = *state;
    const double prompts = serve_program_metric(s, "vllm:prompt_tokens_total"),
                 outputs = serve_program_metric(s, "vllm:generation_tokens_total"),
                 firsts = serve_program_metric(s, "vllm:time_to_first_token_seconds_count"),
                 between = serve_program_metric(s, "vllm:inter_token_latency_seconds_count");
    json_decref(
        serve_program_ask(s, COMPLETIONS, "{\"prompt\": [5, 6, 7], \"max_tokens\": 4, \"ignore_eos\": true}", 200));
    assert_true(serve_program_metric(s, "vllm:prompt_tokens_total") == prompts + 3);
    assert_true(serve_program_metric(s, "vllm:generation_tokens_total") == outputs + 4);
    assert_true(serve_program_metric(s, "vllm:time_to_first_token_seconds_count") == firsts + 1);
    assert_true(serve_program_metric(s, "vllm:inter_token_latency_seconds_count") == between + 3);
}

/* ---- who may ask ---- */

static int status_of(const struct serve_program *s, const char *path, const char *headers)
{
    struct http_reply r;
    serve_program_get(s, path, headers, NULL, &r);
    const int status = r.status;
    http_reply_free(&r);
    return status;
}

static void test_keys(void **state)
{
    const struct temp_folder *folder = *state;
    char path[512];
    struct serve_program s;
    const char *const flags[] = {"--api-key", "one", "--api-key-file", path, NULL};
    temp_folder_write_string(folder, "keys", "two\r\n\n  three  \n");
    assert_true(path_join(path, sizeof path, folder->path, "keys"));
    serve_program_start(&s, flags);
    assert_int_equal(status_of(&s, "/v1/models", ""), 401);
    assert_int_equal(status_of(&s, "/v1/models", "Authorization: Bearer on\r\n"), 401);
    assert_int_equal(status_of(&s, "/v1/models", "Authorization: Bearer onee\r\n"), 401);
    assert_int_equal(status_of(&s, "/v1/models", "Authorization: one\r\n"), 401);
    assert_int_equal(status_of(&s, "/v1/models", "Authorization: Bearer \r\n"), 401);
    assert_int_equal(status_of(&s, "/v1/models", "Authorization: Bearer one\r\n"), 200);
    assert_int_equal(status_of(&s, "/v1/models", "Authorization: Bearer two\r\n"), 200);
    assert_int_equal(status_of(&s, "/v1/models", "x-api-key: three\r\n"), 200);
    assert_int_equal(status_of(&s, "/nothing", ""), 401);
    assert_int_equal(status_of(&s, "/metrics", ""), 401);
    assert_int_equal(status_of(&s, "/health", ""), 200);
    assert_int_equal(status_of(&s, "/version", ""), 200);
    assert_int_equal(status_of(&s, "/", ""), 200);
    serve_program_stop(&s);
}

/* ---- overload ---- */

static void test_overload(void **state)
{
    (void)state;
    static const char *const flags[] = {"--max-waiting-requests", "1", NULL};
    struct serve_program s;
    struct http_client first, second;
    struct http_reply r;
    char again[16];
    serve_program_start(&s, flags);
    open_stream(&first, &s, LONG);
    http_client_open(&second, s.url);
    http_client_send(&second, "POST", COMPLETIONS, "", LONG);
    wait_for_metric(&s, "vllm:num_requests_waiting", 1);
    serve_program_get(&s, COMPLETIONS, "", LONG, &r);
    assert_int_equal(r.status, 429);
    assert_true(http_reply_header(&r, "Retry-After", again, sizeof again));
    http_reply_free(&r);
    assert_int_equal(status_of(&s, "/health", ""), 200);
    http_client_close(&first);
    http_client_close(&second);
    wait_for_metric(&s, "vllm:num_requests_waiting", 0);
    wait_for_metric(&s, "vllm:num_requests_running", 0);
    json_decref(serve_program_ask(&s, COMPLETIONS, "{\"prompt\": \"a\", \"max_tokens\": 2}", 200));
    check_error(&s, COMPLETIONS, "{\"prompt\": [\"a\", \"b\"], \"temperature\": 1, \"n\": 9}", 400,
                "asks for 18 answers");
    serve_program_stop(&s);
}

/* ---- the end ---- */

/* The request that runs is answered to its end. */
static void test_drain(void **state)
{
    (void)state;
    struct serve_program s;
    struct http_client c;
    struct http_reply r;
    serve_program_start(&s, NO_FLAGS);
    open_stream(&c, &s, STREAM("4", "300"));
    kill(s.pid, SIGTERM);
    http_client_read(&c, false, &r);
    assert_true(r.whole);
    assert_non_null(strstr(r.body.data, "data: [DONE]"));
    assert_non_null(strstr(r.body.data, "\"finish_reason\":\"length\""));
    assert_null(strstr(r.body.data, "\"finish_reason\":\"abort\""));
    assert_int_equal(serve_program_wait(&s), 0);
    assert_true(http_client_is_refused(s.url));
    http_reply_free(&r);
    http_client_close(&c);
    serve_program_free(&s);
}

/* ... but not for longer than is allowed. */
static void test_cut(void **state)
{
    (void)state;
    static const char *const flags[] = {"--shutdown-timeout", "0", NULL};
    struct serve_program s;
    struct http_client c;
    struct http_reply r;
    serve_program_start(&s, flags);
    open_stream(&c, &s, LONG);
    kill(s.pid, SIGINT);
    http_client_read(&c, false, &r);
    assert_true(r.whole);
    assert_non_null(strstr(r.body.data, "abort"));
    assert_int_equal(serve_program_wait(&s), 0);
    assert_non_null(strstr(s.said.data, "are cut"));
    http_reply_free(&r);
    http_client_close(&c);
    serve_program_free(&s);
}

/* A second signal ends the process at once. */
static void test_second_signal(void **state)
{
    (void)state;
    struct serve_program s;
    struct http_client c;
    serve_program_start(&s, NO_FLAGS);
    open_stream(&c, &s, LONG);
    kill(s.pid, SIGTERM);
    for (int i = 0; i < 6000 && !http_client_is_refused(s.url); i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    kill(s.pid, SIGINT);
    assert_int_equal(serve_program_wait(&s), 128 + SIGINT);
    http_client_close(&c);
    serve_program_free(&s);
}

/* ---- other ways to run it ---- */

static void test_unix_socket(void **state)
{
    const struct temp_folder *folder = *state;
    char path[512];
    struct serve_program s;
    const char *const flags[] = {"--uds", path, NULL};
    assert_true(path_join(path, sizeof path, folder->path, "socket"));
    serve_program_start(&s, flags);
    assert_non_null(strstr(s.url, "unix:"));
    json_decref(serve_program_ask(&s, "/v1/models", NULL, 200));
    serve_program_stop(&s);
}

static void test_several_engines(void **state)
{
    (void)state;
    static const char *const flags[] = {"-dp", "2", "--served-model-name", "first", NULL};
    struct serve_program s;
    serve_program_start(&s, flags);
    void *server = &s;
    test_many_clients(&server);
    test_client_goes(&server);
    serve_program_stop(&s);
}

/* Ids and counts, and what was said only where that is asked for. */
static void check_log(bool with_bodies)
{
    const char *const flags[] = {"--enable-log-requests", with_bodies ? "--max-log-len" : NULL, "20", NULL};
    struct serve_program s;
    struct http_reply r;
    serve_program_start(&s, flags);
    serve_program_get(&s, COMPLETIONS, "X-Request-Id: mine\r\n", "{\"prompt\": \"secret\", \"max_tokens\": 3}", &r);
    http_reply_free(&r);
    kill(s.pid, SIGTERM);
    assert_int_equal(serve_program_wait(&s), 0);
    assert_non_null(strstr(s.said.data, "mine 127.0.0.1 POST /v1/completions 200 prompt="));
    assert_true(!strstr(s.said.data, "secret") == !with_bodies);
    assert_true(!strstr(s.said.data, "max_tokens"));
    serve_program_free(&s);
}

static void test_log(void **state)
{
    (void)state;
    check_log(false);
    check_log(true);
}

/* All of this machine, without a key. */
static void test_warning(void **state)
{
    (void)state;
    static const char *const flags[] = {"--host", "0.0.0.0", NULL};
    struct serve_program s;
    serve_program_start(&s, flags);
    assert_non_null(strstr(s.said.data, "warning: everyone who reaches http://0.0.0.0"));
    serve_program_stop(&s);
}

int main(void)
{
    const struct CMUnitTest one_server[] = {
        cmocka_unit_test(test_facts),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_long_prompt),
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_answer_of_generate),
        cmocka_unit_test(test_many_clients),
        cmocka_unit_test(test_several_prompts),
        cmocka_unit_test(test_request_id),
        cmocka_unit_test(test_client_goes),
        cmocka_unit_test(test_metrics),
    };
    const struct CMUnitTest own_servers[] = {
        cmocka_unit_test_setup_teardown(test_keys, temp_folder_setup, temp_folder_teardown),
        cmocka_unit_test(test_overload),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_second_signal),
        cmocka_unit_test_setup_teardown(test_unix_socket, temp_folder_setup, temp_folder_teardown),
        cmocka_unit_test(test_several_engines),
        cmocka_unit_test(test_log),
        cmocka_unit_test(test_warning),
    };
    const int failed = cmocka_run_group_tests_name("one server", one_server, start_server, stop_server);
    return failed + cmocka_run_group_tests_name("own servers", own_servers, NULL, NULL);
}
