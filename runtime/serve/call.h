/* A request of an API while it is answered: its prompts in the engine, and the response that their pieces become.
 *
 * A call ends when the engine has ended the requests of all its prompts, whether or not somebody still reads: so a
 * client that goes away makes the engine end them, and the call follows. */
#ifndef QUIRE_RUNTIME_CALL_H
#define QUIRE_RUNTIME_CALL_H

#include <stdatomic.h>

#include "runtime/engine/piece_copy.h"
#include "runtime/prompts/api.h"
#include "runtime/serve/http.h"
#include "runtime/serve/metrics.h"
#include "runtime/serve/request_log.h"

struct service;

/* What all calls have in common. */
struct call_context {
    struct service *service;
    struct metrics *metrics;
    const struct request_log *log;
};

/* A prompt of a call: a request of the engine. */
struct call_prompt {
    struct call *call;
    int32_t number;
    /* Of the engine's thread. */
    uint64_t id;
    bool is_running, is_lost; /* the engine has not ended it; a piece was lost for want of memory */
    struct piece_copy spare;  /* the last piece, where there is no memory for it */
    /* Of the delivery's thread. */
    bool has_token;
};

struct call {
    const struct call_context *context;
    struct http_exchange *exchange;
    const char *path; /* as metrics and the log name it */
    double received;  /* clock_seconds */
    struct api_request request;
    struct api_response *response;
    struct call_prompt *prompts; /* [request.num_prompts] */
    int32_t num_answers;         /* of all prompts */
    atomic_int references;       /* of the delivery, and of the list of those whose client has gone */
    atomic_bool gone;            /* nobody reads the response */
    /* Under the service's lock. */
    struct call *next_new, *next_gone;
    /* Of the engine's thread: neighbours in the list of calls that run. */
    struct call *previous, *next;
    int32_t num_running; /* prompts that the engine has not ended */
    /* Of the delivery's thread. */
    struct call *next_touched;
    bool is_touched;  /* in the list of calls that have something to send */
    int32_t num_open; /* prompts whose last piece has not come */
    struct text out;  /* to be sent */
    bool begun, answered, no_memory;
    double first_token, *last_tokens; /* clock_seconds of them; [num_answers]; 0: none came */
};

/* Takes over *request, which is empty afterwards, also after a failure. `rules` outlive the call. */
enum status call_create(const struct call_context *context, const struct api_rules *rules, struct http_exchange *x,
                        const char *path, double received, struct api_request *request, struct call **out,
                        struct error *err);
void call_hold(struct call *c);
void call_release(struct call *c); /* frees it with the last reference */

/* The calls of the delivery's thread. */
void call_take(struct call_prompt *p, const struct answer_piece *piece, double now);
/* Sends what there is to send. False: nobody reads it. */
bool call_send(struct call *c);
/* The last call of the delivery, after the last piece: ends the exchange. */
void call_end(struct call *c, double now);

/* Answers an exchange at once with a refusal, and ends it. */
void call_refuse(const struct call_context *context, struct http_exchange *x, const char *path, enum api_form form,
                 const struct api_refusal *refusal);
/* Answers it with body[length], counts and logs that, and ends it. */
void call_reply(const struct call_context *context, struct http_exchange *x, const char *path, int status,
                const char *type, const char *body, size_t length);

#endif
