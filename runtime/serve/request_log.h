/* The log of requests: a line on stderr for each that has ended, with ids, sizes and times, and never what was said; or
 * with the beginning of its body, where the one who runs the server asks for that. */
#ifndef QUIRE_RUNTIME_REQUEST_LOG_H
#define QUIRE_RUNTIME_REQUEST_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/prompts/api_writer.h"
#include "runtime/serve/http.h"

struct request_log {
    bool enabled;
    int32_t body_bytes; /* of a body that are written */
};

/* The answers to a request, for its line. */
struct request_facts {
    struct api_usage usage;
    double first_seconds; /* to the first token; below 0: none came */
    double seconds;       /* to the end */
};

/* Writes the body's beginning, if that is asked for. */
void request_log_body(const struct request_log *log, const struct http_exchange *x);
/* Writes the line; `path` is what the request was answered as; `facts` may be NULL. Before http_end. */
void request_log_end(const struct request_log *log, const struct http_exchange *x, const char *path, int status,
                     const struct request_facts *facts);

#endif
