/* quire serve as a process of its own, with the guide. */
#ifndef QUIRE_TESTS_SUPPORT_SERVE_PROGRAM_H
#define QUIRE_TESTS_SUPPORT_SERVE_PROGRAM_H

#include <jansson.h>
#include <sys/types.h>

#include "base/array.h"
#include "tests/support/http_client.h"

struct serve_program {
    pid_t pid;
    int err;          /* its standard error */
    struct text said; /* what was read of it */
    char url[256];
};

/* Starts it on a free port with further flags, which end with NULL, and returns when it is ready. */
void serve_program_start(struct serve_program *s, const char *const *flags);
/* Waits for its end; returns the exit status, or 128 and the signal that ended it. Then `said` is all that it said. */
int serve_program_wait(struct serve_program *s);
/* SIGTERM; fails the test unless the process ends with 0. Frees `said`. */
void serve_program_stop(struct serve_program *s);
void serve_program_free(struct serve_program *s);

/* One request on a connection of its own, and its answer, which is to have this status and to be a JSON object; the
 * caller owns it. `body` NULL: GET, else POST. */
json_t *serve_program_ask(const struct serve_program *s, const char *path, const char *body, int status);
/* The same of any answer. */
void serve_program_get(const struct serve_program *s, const char *path, const char *headers, const char *body,
                       struct http_reply *out);

/* The number behind a line's beginning in what /metrics says; fails the test if there is no such line. */
double serve_program_metric(const struct serve_program *s, const char *name);

#endif
