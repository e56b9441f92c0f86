/* The HTTP server, over sockets: requests and answers as they should be. test_http_faults.c has the others. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/serve/http.h"
#include "tests/support/http_client.h"
#include "tests/support/http_test_server.h"
#include "tests/support/temp_folder.h"

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

static void check_reply(struct http_reply *r, int status, const char *body)
{
    assert_int_equal(r->status, status);
    assert_true(r->whole);
    if (body) assert_string_equal(r->body.data, body);
    http_reply_free(r);
}

static void check_header(const struct http_reply *r, const char *name, const char *value)
{
    char found[256];
    assert_true(http_reply_header(r, name, found, sizeof found));
    assert_string_equal(found, value);
}

static void open_client(struct http_client *c)
{
    http_client_open(c, t.url);
}

/* ---- requests ---- */

static void a_request_is_read(void **state)
{
    (void)state;
    struct http_client c;
    struct http_reply r;
    open_client(&c);
    http_client_ask(&c, "GET", "/facts?b=1&a=x%20y%2Bz", "x-A: some value\r\n", NULL, &r);
    check_header(&r, "Content-Type", "text/plain");
    check_reply(&r, 200, "GET\n/facts\nx y+z\nsome value\n127.0.0.1\n");
    http_client_ask(&c, "POST", "/fac%74s", "", "body", &r);
    check_reply(&r, 200, "POST\n/facts\n-\n-\n127.0.0.1\n");
    http_client_ask(&c, "PUT", "http://localhost/facts?a=", "", "", &r);
    check_reply(&r, 200, "PUT\n/facts\n\n-\n127.0.0.1\n");
    http_client_ask(&c, "GET", "/nothing", "", NULL, &r);
    check_reply(&r, 404, "no such path");
    http_client_ask(&c, "GET", "/forget", "", NULL, &r);
    check_header(&r, "Content-Type", "application/json");
    check_reply(&r, 500, "{\"status\": 500, \"message\": \"the request was not answered\"}");
    http_client_close(&c);
}

static void an_id_is_kept_or_made(void **state)
{
    (void)state;
    struct http_client c;
    struct http_reply r;
    char first[64], second[64];
    open_client(&c);
    http_client_ask(&c, "GET", "/facts", "X-Request-ID: my-id/7\r\n", NULL, &r);
    check_header(&r, "X-Request-Id", "my-id/7");
    http_reply_free(&r);
    http_client_ask(&c, "GET", "/facts", "X-Request-Id: two words\r\n", NULL, &r);
    assert_true(http_reply_header(&r, "X-Request-Id", first, sizeof first));
    http_reply_free(&r);
    http_client_ask(&c, "GET", "/facts", "", NULL, &r);
    assert_true(http_reply_header(&r, "X-Request-Id", second, sizeof second));
    http_reply_free(&r);
    assert_int_equal(strlen(first), 32);
    assert_int_equal(strlen(second), 32);
    assert_string_not_equal(first, second);
    http_client_close(&c);
}

static void head_has_no_body(void **state)
{
    (void)state;
    struct http_client c;
    struct http_reply r;
    open_client(&c);
    http_client_ask(&c, "HEAD", "/facts", "", NULL, &r);
    check_header(&r, "Content-Length", "25");
    check_reply(&r, 200, "");
    http_client_ask(&c, "GET", "/nothing", "", NULL, &r);
    check_reply(&r, 404, "no such path");
    http_client_send(&c, "HEAD", "/hold", "", NULL);
    struct http_exchange *x = http_test_take(&t);
    assert_string_equal(http_method(x), "GET");
    http_begin(x, 200, "text/event-stream");
    assert_true(http_send(x, "some", 4));
    http_client_read(&c, true, &r);
    check_reply(&r, 200, "");
    assert_false(http_client_fill(&c, 1)); /* the length is not known, so the connection ends */
    assert_true(http_send(x, "more", 4));
    http_end(x);
    http_client_close(&c);
    assert_int_equal(atomic_load(&t.num_gone), 0);
}

/* A body comes in pieces of any size, its length known or not. */
static void a_body_is_read(void **state)
{
    (void)state;
    struct http_client c;
    struct http_reply r;
    char *body = malloc(300001);
    for (int i = 0; i < 300000; i++) body[i] = (char)('a' + i % 25);
    body[300000] = 0;
    open_client(&c);
    http_client_ask(&c, "POST", "/echo", "", body, &r);
    check_header(&r, "X-Echo", "yes");
    check_reply(&r, 200, body);
    static const char chunked[] = "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                                  "5\r\nabcde\r\n1\r\nf\r\n0\r\nX-Trailer: 1\r\n\r\n";
    for (size_t i = 0; i < strlen(chunked); i++) http_client_write(&c, chunked + i, 1);
    http_client_read(&c, false, &r);
    check_reply(&r, 200, "abcdef");
    http_client_send(&c, "POST", "/echo", "Expect: 100-continue\r\nContent-Length: 3\r\n", NULL);
    http_client_read(&c, false, &r);
    check_reply(&r, 100, NULL);
    http_client_write(&c, "xyz", 3);
    http_client_read(&c, false, &r);
    check_reply(&r, 200, "xyz");
    http_client_close(&c);
    free(body);
}

static void requests_are_answered_in_order(void **state)
{
    (void)state;
    enum { COUNT = 500 };
    struct http_client c;
    struct http_reply r;
    struct text all = {0};
    char body[16];
    for (int i = 0; i < COUNT; i++) {
        snprintf(body, sizeof body, "%d", i);
        text_printf(&all, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
    }
    open_client(&c);
    http_client_write(&c, all.data, all.length);
    for (int i = 0; i < COUNT; i++) {
        snprintf(body, sizeof body, "%d", i);
        http_client_read(&c, false, &r);
        check_reply(&r, 200, body);
    }
    http_client_close(&c);
    text_free(&all);
}

static void http_1_0_is_answered(void **state)
{
    (void)state;
    struct http_client c;
    struct http_reply r;
    static const char request[] = "GET /hold HTTP/1.0\r\n\r\n";
    open_client(&c);
    http_client_write(&c, request, strlen(request));
    struct http_exchange *x = http_test_take(&t);
    http_begin(x, 200, "text/plain");
    assert_true(http_send(x, "one ", 4));
    assert_true(http_send(x, "two", 3));
    http_end(x);
    http_client_read(&c, false, &r);
    check_reply(&r, 200, "one two");
    http_client_close(&c);
}

/* ---- answers that come later ---- */

static void an_answer_may_come_later(void **state)
{
    (void)state;
    struct http_client c;
    struct http_reply r;
    open_client(&c);
    for (int i = 0; i < 3; i++) {
        http_client_send(&c, "POST", "/hold", "", "question");
        struct http_exchange *x = http_test_take(&t);
        size_t length;
        assert_string_equal(http_body(x, &length), "question");
        http_answer(x, 201, "text/plain", "answer", 6);
        http_end(x);
        http_client_read(&c, false, &r);
        check_reply(&r, 201, "answer");
    }
    http_client_send(&c, "POST", "/hold", "", "question");
    http_end(http_test_take(&t));
    http_client_read(&c, false, &r);
    check_reply(&r, 500, NULL);
    http_client_close(&c);
    assert_int_equal(atomic_load(&t.num_gone), 0);
}

static void a_stream_comes_piece_by_piece(void **state)
{
    (void)state;
    struct http_client c;
    struct http_reply r;
    open_client(&c);
    http_client_send(&c, "GET", "/hold", "", NULL);
    struct http_exchange *x = http_test_take(&t);
    http_add_header(x, "Cache-Control", "no-cache");
    http_begin(x, 200, "text/event-stream");
    assert_true(http_send(x, "first", 5));
    assert_true(http_client_fill(&c, 1)); /* before the rest is there */
    assert_true(http_send(x, "", 0));
    assert_true(http_send(x, "second", 6));
    http_end(x);
    http_client_read(&c, false, &r);
    check_header(&r, "Cache-Control", "no-cache");
    check_header(&r, "Transfer-Encoding", "chunked");
    check_reply(&r, 200, "firstsecond");
    http_client_ask(&c, "GET", "/nothing", "", NULL, &r);
    check_reply(&r, 404, "no such path");
    http_client_close(&c);
}

enum { NUM_STREAMS = 300, NUM_PIECES = 40 };

static void *send_streams(void *unused)
{
    (void)unused;
    static struct http_exchange *streams[NUM_STREAMS];
    char piece[64];
    for (int i = 0; i < NUM_STREAMS; i++) {
        streams[i] = http_test_take(&t);
        http_begin(streams[i], 200, "text/event-stream");
    }
    for (int p = 0; p < NUM_PIECES; p++) {
        http_send_several_begin(t.server);
        for (int i = 0; i < NUM_STREAMS; i++) {
            snprintf(piece, sizeof piece, "%s:%d;", http_query(streams[i], "n"), p);
            if (!http_send(streams[i], piece, strlen(piece))) abort();
        }
        http_send_several_end(t.server);
    }
    for (int i = 0; i < NUM_STREAMS; i++) http_end(streams[i]);
    return NULL;
}

/* Each gets its own pieces, all of them, and in their order. */
static void many_streams_are_not_mixed_up(void **state)
{
    (void)state;
    static struct http_client clients[NUM_STREAMS];
    pthread_t sender;
    char path[32];
    assert_int_equal(pthread_create(&sender, NULL, send_streams, NULL), 0);
    for (int i = 0; i < NUM_STREAMS; i++) {
        open_client(&clients[i]);
        snprintf(path, sizeof path, "/hold?n=%d", i);
        http_client_send(&clients[i], "GET", path, "", NULL);
    }
    for (int i = 0; i < NUM_STREAMS; i++) {
        struct text expected = {0};
        struct http_reply r;
        for (int p = 0; p < NUM_PIECES; p++) text_printf(&expected, "%d:%d;", i, p);
        http_client_read(&clients[i], false, &r);
        check_reply(&r, 200, expected.data);
        text_free(&expected);
        http_client_close(&clients[i]);
    }
    pthread_join(sender, NULL);
}

/* ---- origins ---- */

static void browsers_are_told_what_pages_may_do(void **state)
{
    (void)state;
    struct http_client c;
    struct http_reply r;
    char value[64];
    http_test_prepare(&t);
    t.options.allowed_origins = "http://a.example, https://b.example:8443";
    http_test_start(&t);
    open_client(&c);
    http_client_ask(&c, "GET", "/facts", "Origin: https://b.example:8443\r\n", NULL, &r);
    check_header(&r, "Access-Control-Allow-Origin", "https://b.example:8443");
    check_header(&r, "Vary", "Origin");
    check_reply(&r, 200, NULL);
    http_client_ask(&c, "GET", "/facts", "Origin: http://a.exampl\r\n", NULL, &r);
    assert_false(http_reply_header(&r, "Access-Control-Allow-Origin", value, sizeof value));
    check_reply(&r, 200, NULL);
    static const char preflight[] = "Access-Control-Request-Method: POST\r\n"
                                    "Access-Control-Request-Headers: authorization, content-type\r\n";
    char headers[256];
    snprintf(headers, sizeof headers, "Origin: http://a.example\r\n%s", preflight);
    http_client_ask(&c, "OPTIONS", "/facts", headers, NULL, &r);
    check_header(&r, "Access-Control-Allow-Origin", "http://a.example");
    check_header(&r, "Access-Control-Allow-Headers", "authorization, content-type");
    check_reply(&r, 204, NULL);
    snprintf(headers, sizeof headers, "Origin: http://c.example\r\n%s", preflight);
    http_client_ask(&c, "OPTIONS", "/facts", headers, NULL, &r);
    check_reply(&r, 403, NULL);
    http_client_ask(&c, "OPTIONS", "/facts", "", NULL, &r);
    check_reply(&r, 200, "OPTIONS\n/facts\n-\n-\n127.0.0.1\n");
    http_client_close(&c);
    http_test_stop(&t);
}

/* ---- where it listens ---- */

static void a_unix_socket_is_served(void **state)
{
    const struct temp_folder *folder = *state;
    struct http_client c;
    struct http_reply r;
    struct http_server *second;
    struct error err;
    struct stat s;
    char host[300];
    snprintf(host, sizeof host, "unix:%s/quire.sock", folder->path);
    for (int round = 0; round < 2; round++) {
        http_test_prepare(&t);
        t.options.host = host;
        t.options.socket_mode = round == 0 ? 0 : 0660;
        http_test_start(&t);
        assert_string_equal(t.url, host);
        assert_int_equal(stat(host + 5, &s), 0);
        assert_int_equal(s.st_mode & 0777, round == 0 ? 0600 : 0660);
        open_client(&c);
        http_client_ask(&c, "GET", "/facts", "", NULL, &r);
        check_reply(&r, 200, "GET\n/facts\n-\n-\nunix\n");
        http_client_close(&c);
        assert_int_equal(http_server_start(&t.options, &second, &err), STATUS_IO);
        assert_non_null(strstr(err.text, "another process listens"));
        http_test_stop(&t);
        assert_int_not_equal(stat(host + 5, &s), 0);
    }
    temp_folder_write_string(folder, "quire.sock", "a file");
    assert_int_equal(http_server_start(&t.options, &second, &err), STATUS_IO);
    assert_non_null(strstr(err.text, "another kind of file"));
}

/* A process that was killed leaves the file of its socket. */
static void a_stale_socket_is_replaced(void **state)
{
    const struct temp_folder *folder = *state;
    struct http_client c;
    struct http_reply r;
    char host[300], kept[300];
    snprintf(host, sizeof host, "unix:%s/a.sock", folder->path);
    snprintf(kept, sizeof kept, "%s/kept.sock", folder->path);
    http_test_prepare(&t);
    t.options.host = host;
    http_test_start(&t);
    assert_int_equal(link(host + 5, kept), 0);
    http_test_stop(&t);
    assert_int_equal(rename(kept, host + 5), 0);
    http_test_prepare(&t);
    t.options.host = host;
    http_test_start(&t);
    open_client(&c);
    http_client_ask(&c, "GET", "/nothing", "", NULL, &r);
    check_reply(&r, 404, NULL);
    http_client_close(&c);
    http_test_stop(&t);
}

static void ipv6_is_served(void **state)
{
    (void)state;
    struct http_client c;
    struct http_reply r;
    struct error err;
    http_test_prepare(&t);
    t.options.host = "::1";
    if (http_server_start(&t.options, &t.server, &err) != STATUS_OK) skip();
    t.url = http_server_url(t.server);
    assert_memory_equal(t.url, "http://[::1]:", 13);
    open_client(&c);
    http_client_ask(&c, "GET", "/facts", "", NULL, &r);
    check_reply(&r, 200, "GET\n/facts\n-\n-\n::1\n");
    http_client_close(&c);
    http_test_stop(&t);
}

static void an_address_in_use_is_refused(void **state)
{
    (void)state;
    struct http_server *second;
    struct error err;
    struct http_options o = t.options;
    assert_int_equal(sscanf(t.url, "http://127.0.0.1:%d", &o.port), 1);
    assert_int_equal(http_server_start(&o, &second, &err), STATUS_IO);
    assert_null(second);
    assert_non_null(strstr(err.text, "Address already in use"));
    o.host = "no.such.name.invalid";
    assert_int_equal(http_server_start(&o, &second, &err), STATUS_IO);
    assert_non_null(strstr(err.text, "no.such.name.invalid"));
    o.inherited = true;
    assert_int_equal(http_server_start(&o, &second, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "LISTEN_FDS"));
}

/* The socket of another server, as descriptor 3. */
static void an_inherited_socket_is_served(void **state)
{
    (void)state;
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    struct http_client c;
    struct http_reply r;
    char pid[32];
    const int kept = dup(3), listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(listen(listener, 16), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &length), 0);
    if (listener != 3) assert_int_equal(dup2(listener, 3), 3);
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    setenv("LISTEN_PID", pid, 1);
    setenv("LISTEN_FDS", "1", 1);
    http_test_prepare(&t);
    t.options.inherited = true;
    http_test_start(&t);
    assert_null(getenv("LISTEN_FDS"));
    assert_memory_equal(t.url, "http://0.0.0.0:", 15);
    open_client(&c);
    http_client_ask(&c, "GET", "/facts", "", NULL, &r);
    check_reply(&r, 200, NULL);
    http_client_close(&c);
    http_test_stop(&t);
    if (listener != 3) close(listener);
    if (kept >= 0) {
        dup2(kept, 3);
        close(kept);
    }
}

/* ---- TLS, with the program openssl as the client ---- */

static bool make_certificate(const struct temp_folder *folder, const char *name)
{
    char command[1200];
    snprintf(command, sizeof command,
             "cd %s && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
             "-subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 -keyout %s.key -out %s.pem >/dev/null 2>&1",
             folder->path, name, name);
    return system(command) == 0;
}

static FILE *ask_with_tls(const char *path, const char *certificate)
{
    char command[1200];
    snprintf(command, sizeof command,
             "printf 'GET %s HTTP/1.1\\r\\nHost: a\\r\\nConnection: close\\r\\n\\r\\n' | "
             "openssl s_client -quiet -verify_return_error -CAfile %s -connect %s 2>/dev/null",
             path, certificate, t.url + strlen("https://"));
    FILE *answer = popen(command, "r");
    assert_non_null(answer);
    return answer;
}

static void check_answer(FILE *answer, const char *end)
{
    char text[4096];
    const size_t length = fread(text, 1, sizeof text - 1, answer);
    text[length] = 0;
    pclose(answer);
    assert_memory_equal(text, "HTTP/1.1 200 OK\r\n", 17);
    assert_in_range(length, strlen(end), sizeof text);
    assert_string_equal(text + length - strlen(end), end);
}

static void tls_is_served(void **state)
{
    const struct temp_folder *folder = *state;
    struct http_server *second;
    struct error err;
    char certificate[300], key[300], other[300];
    if (!make_certificate(folder, "a") || !make_certificate(folder, "b")) skip();
    snprintf(certificate, sizeof certificate, "%s/a.pem", folder->path);
    snprintf(key, sizeof key, "%s/a.key", folder->path);
    snprintf(other, sizeof other, "%s/b.key", folder->path);
    http_test_prepare(&t);
    t.options.certificate = certificate;
    t.options.key = key;
    http_test_start(&t);
    assert_memory_equal(t.url, "https://127.0.0.1:", 18);
    check_answer(ask_with_tls("/facts?a=1", certificate), "GET\n/facts\n1\n-\n127.0.0.1\n");
    FILE *answer = ask_with_tls("/hold", certificate);
    struct http_exchange *x = http_test_take(&t);
    http_begin(x, 200, "text/event-stream");
    assert_true(http_send(x, "first", 5));
    assert_true(http_send(x, "second", 6));
    http_end(x);
    check_answer(answer, "0\r\n\r\n");
    http_test_stop(&t);
    t.options.key = other;
    assert_int_equal(http_server_start(&t.options, &second, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "a.pem"));
    t.options.key = "/no/such/key";
    assert_int_equal(http_server_start(&t.options, &second, &err), STATUS_IO);
    assert_non_null(strstr(err.text, "/no/such/key"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_request_is_read, start, stop),
        cmocka_unit_test_setup_teardown(an_id_is_kept_or_made, start, stop),
        cmocka_unit_test_setup_teardown(head_has_no_body, start, stop),
        cmocka_unit_test_setup_teardown(a_body_is_read, start, stop),
        cmocka_unit_test_setup_teardown(requests_are_answered_in_order, start, stop),
        cmocka_unit_test_setup_teardown(http_1_0_is_answered, start, stop),
        cmocka_unit_test_setup_teardown(an_answer_may_come_later, start, stop),
        cmocka_unit_test_setup_teardown(a_stream_comes_piece_by_piece, start, stop),
        cmocka_unit_test_setup_teardown(many_streams_are_not_mixed_up, start, stop),
        cmocka_unit_test(browsers_are_told_what_pages_may_do),
        cmocka_unit_test_setup_teardown(a_unix_socket_is_served, temp_folder_setup, temp_folder_teardown),
        cmocka_unit_test_setup_teardown(a_stale_socket_is_replaced, temp_folder_setup, temp_folder_teardown),
        cmocka_unit_test(ipv6_is_served),
        cmocka_unit_test_setup_teardown(an_address_in_use_is_refused, start, stop),
        cmocka_unit_test(an_inherited_socket_is_served),
        cmocka_unit_test_setup_teardown(tls_is_served, temp_folder_setup, temp_folder_teardown),
    };
    return cmocka_run_group_tests_name("http", tests, NULL, NULL);
}
