/* A server for tests of runtime/serve/http.h: what it answers follows from the path.
 *
 *   /facts   method, path, the parameter `a`, the header X-A and the peer, a line each
 *   /echo    the body
 *   /hold    nothing: a test takes the exchange (http_test_take) and answers
 *   /forget  http_end without an answer
 *   others   404
 *
 * If the request has a header X-Refuse, its head is answered with 401. */
#ifndef QUIRE_TESTS_SUPPORT_HTTP_TEST_SERVER_H
#define QUIRE_TESTS_SUPPORT_HTTP_TEST_SERVER_H

#include <pthread.h>
#include <stdatomic.h>

#include "runtime/serve/http.h"

enum { HTTP_TEST_MAX_HELD = 4096 };

struct http_test_server {
    struct http_options options; /* to be changed before http_test_start */
    struct http_server *server;
    const char *url;
    atomic_int num_handled, num_gone;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct http_exchange *held[HTTP_TEST_MAX_HELD];
    int num_held, num_taken;
    void *gone_data; /* of the last that was gone */
};

void http_test_prepare(struct http_test_server *t); /* options that suit most tests */
void http_test_start(struct http_test_server *t);
void http_test_stop(struct http_test_server *t);
/* The next exchange of /hold, in the order in which they came. */
struct http_exchange *http_test_take(struct http_test_server *t);
void http_test_wait_gone(struct http_test_server *t, int count); /* until so many are gone */

#endif
