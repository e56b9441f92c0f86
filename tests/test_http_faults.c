/* The HTTP server and what goes wrong: clients that vanish, read slowly, send garbage or too much, limits, the end. */
#include <dirent.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/random.h"
#include "tests/support/http_client.h"
#include "tests/support/http_test_server.h"

static struct http_test_server t;

static int start(void **state)
{
    (void)state;
    http_test_prepare(&t);
    http_test_start(&t);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    http_test_stop(&t);
    return 0;
}

static void open_client(struct http_client *c)
{
    http_client_open(c, t.url);
}

static void check_status(struct http_client *c, int status)
{
    struct http_reply r;
    http_client_read(c, false, &r);
    assert_int_equal(r.status, status);
    assert_true(r.whole);
    http_reply_free(&r);
}

/* The server still answers. */
static void check_alive(void)
{
    struct http_client c;
    open_client(&c);
    http_client_send(&c, "GET", "/facts", "", NULL);
    check_status(&c, 200);
    http_client_close(&c);
}

/* ---- clients that go away ---- */

static void a_client_goes_before_the_answer(void **state)
{
    (void)state;
    struct http_client c;
    open_client(&c);
    http_client_send(&c, "POST", "/hold", "", "question");
    struct http_exchange *x = http_test_take(&t);
    http_client_close(&c);
    http_test_wait_gone(&t, 1);
    assert_ptr_equal(t.gone_data, x);
    assert_string_equal(http_path(x), "/hold"); /* still there */
    http_begin(x, 200, "text/plain");
    assert_false(http_send(x, "late", 4));
    http_end(x);
    assert_int_equal(atomic_load(&t.num_gone), 1);
}

static void a_client_goes_within_a_stream(void **state)
{
    (void)state;
    struct http_client c;
    open_client(&c);
    http_client_send(&c, "POST", "/hold", "", "question");
    struct http_exchange *x = http_test_take(&t);
    http_begin(x, 200, "text/plain");
    assert_true(http_send(x, "piece", 5));
    assert_true(http_client_fill(&c, 100));
    http_client_close(&c);
    http_test_wait_gone(&t, 1);
    assert_false(http_send(x, "late", 4));
    http_end(x);
    assert_int_equal(atomic_load(&t.num_gone), 1);
}

/* With the next requests already sent: none of them is handled. */
static void a_client_goes_with_requests_waiting(void **state)
{
    (void)state;
    struct http_client c;
    open_client(&c);
    for (int i = 0; i < 3; i++) http_client_send(&c, "GET", "/hold", "", NULL);
    struct http_exchange *x = http_test_take(&t);
    http_client_close(&c);
    http_test_wait_gone(&t, 1);
    http_end(x);
    check_alive();
    assert_int_equal(atomic_load(&t.num_handled), 2);
}

static void a_client_goes_within_a_request(void **state)
{
    (void)state;
    static const char request[] = "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n12345";
    for (size_t n = 1; n < strlen(request); n++) {
        struct http_client c;
        open_client(&c);
        http_client_write(&c, request, n);
        http_client_close(&c);
    }
    check_alive();
    assert_int_equal(atomic_load(&t.num_handled), 1);
    assert_int_equal(atomic_load(&t.num_gone), 0);
}

static void an_ended_exchange_is_not_gone(void **state)
{
    (void)state;
    struct http_client c;
    open_client(&c);
    http_client_send(&c, "GET", "/hold", "", NULL);
    struct http_exchange *x = http_test_take(&t);
    http_answer(x, 200, "text/plain", "answer", 6);
    http_end(x);
    http_client_close(&c);
    check_alive();
    assert_int_equal(atomic_load(&t.num_gone), 0);
}

enum { NUM_VANISHING = 200 };

static void *answer_vanishing(void *unused)
{
    (void)unused;
    for (int i = 0; i < NUM_VANISHING; i++) {
        struct http_exchange *x = http_test_take(&t);
        http_begin(x, 200, "text/plain");
        for (int piece = 0; piece < 20 && http_send(x, "piece", 5); piece++) continue;
        http_end(x);
    }
    return NULL;
}

/* At any moment of the exchange. */
static void many_clients_vanish(void **state)
{
    (void)state;
    pthread_t thread;
    struct random random = {7};
    assert_int_equal(pthread_create(&thread, NULL, answer_vanishing, NULL), 0);
    for (int i = 0; i < NUM_VANISHING; i++) {
        struct http_client c;
        const struct linger reset = {.l_onoff = 1, .l_linger = 0};
        open_client(&c);
        http_client_send(&c, "GET", "/hold", "", NULL);
        http_client_fill(&c, (size_t)random_between(&random, 0, 250));
        if (random_between(&random, 0, 1)) setsockopt(c.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        while (atomic_load(&t.num_handled) <= i) sched_yield();
        http_client_close(&c);
    }
    pthread_join(thread, NULL);
    check_alive();
}

/* A reader that does not read stops nobody else, and its stream ends when too much waits for it. */
static void a_slow_reader_is_given_up(void **state)
{
    (void)state;
    static char bytes[65536];
    struct http_client c;
    open_client(&c);
    http_client_send(&c, "GET", "/hold", "", NULL);
    struct http_exchange *x = http_test_take(&t);
    http_begin(x, 200, "text/plain");
    size_t sent = 0;
    while (http_send(x, bytes, sizeof bytes)) sent += sizeof bytes;
    assert_in_range(sent, t.options.max_unsent, SIZE_MAX);
    assert_false(http_send(x, bytes, 1));
    http_test_wait_gone(&t, 1);
    http_end(x);
    check_alive();
    struct http_reply r;
    http_client_read(&c, false, &r);
    assert_false(r.whole);
    http_reply_free(&r);
    http_client_close(&c);
}

/* ---- too much ---- */

static void a_large_body_is_refused(void **state)
{
    (void)state;
    struct http_client c;
    char *body = malloc((1 << 20) + 2), headers[64];
    memset(body, 'x', (1 << 20) + 1);
    body[(1 << 20) + 1] = 0;
    open_client(&c);
    http_client_send(&c, "POST", "/echo", "", body);
    check_status(&c, 413);
    body[1 << 20] = 0;
    http_client_send(&c, "POST", "/echo", "", body); /* the largest that is possible, on the same connection */
    check_status(&c, 200);
    http_client_send(&c, "POST", "/echo", "Transfer-Encoding: chunked\r\n", NULL);
    for (int i = 0; i < 3; i++) {
        http_client_write(&c, "80000\r\n", 7);
        http_client_write(&c, body, 0x80000);
        http_client_write(&c, "\r\n", 2);
    }
    http_client_write(&c, "0\r\n\r\n", 5);
    check_status(&c, 413);
    snprintf(headers, sizeof headers, "Content-Length: %d\r\n", 100 << 20);
    http_client_send(&c, "POST", "/echo", headers, NULL);
    check_status(&c, 413); /* at once */
    http_client_close(&c);
    free(body);
    assert_int_equal(atomic_load(&t.num_handled), 1);
}

static void an_endless_body_ends(void **state)
{
    (void)state;
    struct http_client c;
    static char bytes[65536];
    open_client(&c);
    http_client_send(&c, "POST", "/echo", "Transfer-Encoding: chunked\r\n", NULL);
    http_client_write(&c, "7fffffff\r\n", 10);
    for (int i = 0; i < 1000; i++) http_client_write(&c, bytes, sizeof bytes);
    assert_false(http_client_fill(&c, 1));
    http_client_close(&c);
    check_alive();
}

static void a_large_head_is_refused(void **state)
{
    (void)state;
    char value[40000], headers[41000];
    for (size_t length = 15000; length < sizeof value; length += 2500) {
        struct http_client c;
        memset(value, 'v', length);
        value[length] = 0;
        snprintf(headers, sizeof headers, "X-A: %s\r\n", value);
        open_client(&c);
        http_client_send(&c, "GET", "/facts", headers, NULL);
        check_status(&c, length < 16000 ? 200 : 431);
        http_client_close(&c);
    }
    check_alive();
}

/* What is refused by its head needs no memory for its body, and the connection goes on. */
static void a_head_is_refused(void **state)
{
    (void)state;
    struct http_client c;
    open_client(&c);
    for (int i = 0; i < 3; i++) {
        http_client_send(&c, "POST", "/echo", "X-Refuse: 1\r\n", "body");
        check_status(&c, 401);
        http_client_send(&c, "POST", "/echo", "", "body");
        check_status(&c, 200);
    }
    http_client_send(&c, "POST", "/echo", "X-Refuse: 1\r\nExpect: 100-continue\r\nContent-Length: 4\r\n", NULL);
    check_status(&c, 401);
    http_client_close(&c);
    assert_int_equal(atomic_load(&t.num_handled), 3);
}

/* ---- garbage ---- */

static void send_and_read(const char *bytes, size_t count)
{
    struct http_client c;
    struct http_reply r;
    open_client(&c);
    http_client_write(&c, bytes, count);
    shutdown(c.fd, SHUT_WR);
    http_client_read(&c, false, &r);
    if (r.status != 0) assert_in_range(r.status, 200, 599);
    http_reply_free(&r);
    http_client_close(&c);
}

static void garbage_is_survived(void **state)
{
    (void)state;
    static const char *const requests[] = {
        "GET / HTTP/9.9\r\n\r\n",
        "GET\r\n\r\n",
        "\r\n\r\n\r\n",
        "GET /facts HTTP/1.1\r\n\r\n",
        "GET /facts HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
        "GET /facts HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999999\r\n\r\n",
        "GET /facts HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef",
        "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
        "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\nabc",
        "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
        "GET /facts?%00=%ff&a&&=b&a=%zz HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /%00%0d%0a HTTP/1.1\r\nHost: a\r\nX-Request-Id: \x01\r\n\r\n",
        "GET /facts HTTP/1.1\nHost: a\n\n",
        "GET /facts HTTP/1.1\r\nHost: a\r\n folded: yes\r\n: nothing\r\nno colon\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", /* the beginning of TLS */
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
        "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) send_and_read(requests[i], strlen(requests[i]));
    check_alive();
}

/* A good request with some bytes changed, removed or doubled. */
static void damaged_requests_are_survived(void **state)
{
    (void)state;
    static const char request[] = "POST /echo?a=b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nX-A: b\r\n\r\n"
                                  "3\r\nabc\r\n0\r\n\r\nGET /facts HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab";
    struct random random = {11};
    for (int i = 0; i < 400; i++) {
        char damaged[2 * sizeof request];
        size_t length = strlen(request);
        memcpy(damaged, request, length);
        for (int64_t changes = random_between(&random, 1, 4); changes > 0; changes--) {
            const size_t at = (size_t)random_between(&random, 0, (int64_t)length - 2);
            const int64_t kind = random_between(&random, 0, 2);
            if (kind == 0) damaged[at] = (char)random_between(&random, 0, 255);
            if (kind == 1) memmove(damaged + at, damaged + at + 1, --length - at);
            if (kind == 2 && length < sizeof damaged) memmove(damaged + at + 1, damaged + at, length++ - at);
        }
        send_and_read(damaged, length);
    }
    check_alive();
}

/* ---- time and numbers ---- */

/* Sends a byte now and then until the connection is closed, or for a minute. */
static void drip(struct http_client *c)
{
    for (int i = 0; i < 600 && recv(c->fd, &(char){0}, 1, MSG_DONTWAIT) != 0; i++) {
        http_client_write(c, "a", 1);
        usleep(100000);
    }
    assert_false(http_client_fill(c, 1));
    http_client_close(c);
}

static void idle_connections_are_closed(void **state)
{
    (void)state;
    struct http_client idle, used, head, body;
    http_test_prepare(&t);
    t.options.idle_seconds = 1;
    http_test_start(&t);
    open_client(&idle);
    open_client(&used);
    http_client_send(&used, "GET", "/facts", "", NULL);
    check_status(&used, 200);
    open_client(&head);
    http_client_write(&head, "GET /facts HTTP/1.1\r\nX-A: ", 26);
    drip(&head);
    open_client(&body);
    http_client_send(&body, "POST", "/echo", "Content-Length: 1000\r\n", NULL);
    drip(&body);
    assert_false(http_client_fill(&idle, 1));
    assert_false(http_client_fill(&used, 1));
    http_client_close(&idle);
    http_client_close(&used);
    assert_int_equal(atomic_load(&t.num_handled), 1);
    http_test_stop(&t);
}

static void to_await_an_answer_is_not_to_be_idle(void **state)
{
    (void)state;
    struct http_client idle, used;
    http_test_prepare(&t);
    t.options.idle_seconds = 1;
    http_test_start(&t);
    open_client(&used);
    http_client_send(&used, "GET", "/hold", "", NULL);
    struct http_exchange *x = http_test_take(&t);
    open_client(&idle);
    assert_false(http_client_fill(&idle, 1));
    http_answer(x, 200, "text/plain", "x", 1);
    http_end(x);
    check_status(&used, 200);
    http_client_close(&idle);
    http_client_close(&used);
    http_test_stop(&t);
}

static void more_connections_wait(void **state)
{
    (void)state;
    enum { COUNT = 3 };
    struct http_client c[COUNT + 1];
    http_test_prepare(&t);
    t.options.max_connections = COUNT;
    http_test_start(&t);
    for (int i = 0; i <= COUNT; i++) {
        open_client(&c[i]);
        http_client_send(&c[i], "GET", "/hold", "", NULL);
    }
    struct http_exchange *x[COUNT + 1];
    for (int i = 0; i < COUNT; i++) x[i] = http_test_take(&t);
    assert_int_equal(http_server_num_connections(t.server), COUNT);
    assert_int_equal(atomic_load(&t.num_handled), COUNT);
    for (int i = 0; i < COUNT; i++) http_end(x[i]);
    for (int i = 0; i < COUNT; i++) check_status(&c[i], 500);
    http_client_close(&c[0]);
    http_end(http_test_take(&t));
    check_status(&c[COUNT], 500);
    for (int i = 1; i <= COUNT; i++) http_client_close(&c[i]);
    http_test_stop(&t);
}

/* Connections without a request do not keep others out until they have been idle for long. */
static void idle_connections_make_room(void **state)
{
    (void)state;
    enum { COUNT = 4 };
    struct http_client c[COUNT], next;
    http_test_prepare(&t);
    t.options.max_connections = COUNT;
    t.options.idle_seconds = 3600;
    http_test_start(&t);
    for (int i = 0; i < COUNT; i++) {
        open_client(&c[i]);
        http_client_send(&c[i], "GET", i == 0 ? "/hold" : "/facts", "", NULL);
        if (i > 0) check_status(&c[i], 200);
    }
    open_client(&next);
    http_client_send(&next, "GET", "/facts", "", NULL);
    check_status(&next, 200);
    http_end(http_test_take(&t));
    check_status(&c[0], 500);
    for (int i = 0; i < COUNT; i++) http_client_close(&c[i]);
    http_client_close(&next);
    http_test_stop(&t);
}

/* ---- the end ---- */

static void a_closing_server_answers_what_it_has(void **state)
{
    (void)state;
    struct http_client c, idle;
    struct http_reply r;
    char value[16];
    open_client(&c);
    open_client(&idle);
    http_client_send(&idle, "GET", "/facts", "", NULL);
    check_status(&idle, 200);
    http_client_send(&c, "GET", "/hold", "", NULL);
    http_client_send(&c, "GET", "/facts", "", NULL); /* one that it will not take */
    struct http_exchange *x = http_test_take(&t);
    http_server_close_listener(t.server);
    assert_false(http_client_fill(&idle, 1));
    while (!http_client_is_refused(t.url)) sched_yield();
    http_begin(x, 200, "text/plain");
    assert_true(http_send(x, "answer", 6));
    http_end(x);
    http_client_read(&c, false, &r);
    assert_true(http_reply_header(&r, "Connection", value, sizeof value));
    assert_string_equal(value, "close");
    assert_string_equal(r.body.data, "answer");
    http_reply_free(&r);
    assert_false(http_client_fill(&c, 1));
    http_client_close(&c);
    http_client_close(&idle);
    while (http_server_num_connections(t.server) > 0) sched_yield();
}

static void a_stopped_server_leaves_exchanges_to_be_ended(void **state)
{
    (void)state;
    struct http_client c[4];
    struct http_exchange *x[4];
    struct http_reply r;
    http_test_prepare(&t);
    http_test_start(&t);
    for (int i = 0; i < 4; i++) {
        open_client(&c[i]);
        http_client_send(&c[i], "GET", "/hold", "", NULL);
        x[i] = http_test_take(&t);
    }
    http_begin(x[1], 200, "text/plain");
    assert_true(http_send(x[1], "half", 4));
    http_answer(x[2], 200, "text/plain", "whole", 5);
    http_end(x[2]);
    http_begin(x[3], 200, "text/plain");
    assert_true(http_send(x[3], "whole", 5));
    http_end(x[3]);
    http_test_stop(&t);
    assert_int_equal(atomic_load(&t.num_gone), 2);
    http_answer(x[0], 200, "text/plain", "late", 4);
    assert_false(http_send(x[1], "late", 4));
    http_end(x[0]);
    http_end(x[1]);
    assert_false(http_client_fill(&c[0], 1));
    http_client_read(&c[1], false, &r);
    assert_false(r.whole);
    http_reply_free(&r);
    check_status(&c[2], 200);
    check_status(&c[3], 200);
    for (int i = 0; i < 4; i++) http_client_close(&c[i]);
}

static int count_descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder)) count++;
    closedir(folder);
    return count;
}

static void no_descriptor_is_lost(void **state)
{
    (void)state;
    const int before = count_descriptors();
    start(NULL);
    many_clients_vanish(NULL);
    struct http_client c;
    open_client(&c);
    http_client_send(&c, "GET", "/hold", "", NULL);
    struct http_exchange *x = http_test_take(&t);
    stop(NULL);
    http_end(x);
    http_client_close(&c);
    assert_int_equal(count_descriptors(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_client_goes_before_the_answer, start, stop),
        cmocka_unit_test_setup_teardown(a_client_goes_within_a_stream, start, stop),
        cmocka_unit_test_setup_teardown(a_client_goes_with_requests_waiting, start, stop),
        cmocka_unit_test_setup_teardown(a_client_goes_within_a_request, start, stop),
        cmocka_unit_test_setup_teardown(an_ended_exchange_is_not_gone, start, stop),
        cmocka_unit_test_setup_teardown(many_clients_vanish, start, stop),
        cmocka_unit_test_setup_teardown(a_slow_reader_is_given_up, start, stop),
        cmocka_unit_test_setup_teardown(a_large_body_is_refused, start, stop),
        cmocka_unit_test_setup_teardown(an_endless_body_ends, start, stop),
        cmocka_unit_test_setup_teardown(a_large_head_is_refused, start, stop),
        cmocka_unit_test_setup_teardown(a_head_is_refused, start, stop),
        cmocka_unit_test_setup_teardown(garbage_is_survived, start, stop),
        cmocka_unit_test_setup_teardown(damaged_requests_are_survived, start, stop),
        cmocka_unit_test(idle_connections_are_closed),
        cmocka_unit_test(to_await_an_answer_is_not_to_be_idle),
        cmocka_unit_test(more_connections_wait),
        cmocka_unit_test(idle_connections_make_room),
        cmocka_unit_test_setup_teardown(a_closing_server_answers_what_it_has, start, stop),
        cmocka_unit_test(a_stopped_server_leaves_exchanges_to_be_ended),
        cmocka_unit_test(no_descriptor_is_lost),
    };
    return cmocka_run_group_tests_name("http_faults", tests, NULL, NULL);
}
