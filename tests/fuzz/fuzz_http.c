/* What a client sends to the HTTP server, up to the end of its sending. A byte 0xFF is not sent: what is on both sides
 * of it comes in two pieces. The server must end the connection. */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "runtime/serve/http.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/http_client.h"

/* Uses all strings of the request. */
static void handle(void *user, struct http_exchange *x)
{
    size_t length;
    struct text t = {0};
    const char *a = http_query(x, "a"), *header = http_header(x, "X-A"), *body = http_body(x, &length);
    (void)user;
    fuzz_require(body[length] == 0, "a body that does not end");
    text_printf(&t, "%s %s %s %s %s %s", http_method(x), http_path(x), a ? a : "", header ? header : "", http_peer(x),
                http_request_id(x));
    text_append(&t, body, length);
    if (a) http_add_header(x, "X-A", a);
    if (length % 2) {
        http_answer(x, 200, "text/plain", t.data, t.length);
    } else {
        http_begin(x, 200, "text/plain");
        http_send(x, t.data, t.length);
    }
    http_end(x);
    text_free(&t);
}

static const char *server_url(void)
{
    static struct http_server *server;
    struct error err;
    const struct http_options o = {.host = "127.0.0.1",
                                   .num_threads = 1,
                                   .max_connections = 16,
                                   .max_body = 1000,
                                   .max_head = 2000,
                                   .idle_seconds = 30,
                                   .max_unsent = 100000,
                                   .allowed_origins = "http://a,http://b",
                                   .handle = handle};
    if (!server && http_server_start(&o, &server, &err) != STATUS_OK) fuzz_require(false, err.text);
    return http_server_url(server);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_part rest = {(const char *)data, size};
    struct http_client c;
    http_client_open(&c, server_url());
    while (rest.length > 0) {
        const struct fuzz_part part = fuzz_split(&rest, '\xff');
        http_client_write(&c, part.bytes, part.length);
    }
    shutdown(c.fd, SHUT_WR);
    while (http_client_fill(&c, c.in.length + 1)) continue;
    http_client_close(&c);
    return 0;
}
