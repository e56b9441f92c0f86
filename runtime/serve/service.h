/* What stands between the threads that read requests and the engine: one thread, which opens the engine pool, adds
 * requests to it, and steps it. Other threads hand over calls (call.h) that they have read.
 *
 *     HTTP threads -- service_submit --> engine's thread -- pieces --> delivery's thread --> HTTP
 *
 * The queue is bounded: beside the sequences that the engines run, so many answers wait at most. */
#ifndef QUIRE_RUNTIME_SERVICE_H
#define QUIRE_RUNTIME_SERVICE_H

#include "runtime/engine/engine_pool.h"
#include "runtime/serve/call.h"

struct service;

struct service_options {
    const struct engine_options *engine;
    int32_t max_waiting; /* answers */
};

/* Starts the thread, which opens the engines; service_wait_open waits for that, and has its failure. */
enum status service_start(const struct service_options *options, struct service **out, struct error *err);
enum status service_wait_open(struct service *s, struct error *err);
/* From now on calls may be submitted; their exchanges are of this server. */
enum status service_begin(struct service *s, struct http_server *http, struct error *err);

/* ---- any thread, from service_begin to service_free ---- */

/* Whether a call would be taken now; if not, *refusal says why: 429, or 503. */
bool service_check_room(struct service *s, struct api_refusal *refusal);
/* What the engine would refuse of the request. */
enum status service_check_request(const struct service *s, const struct api_request *request, struct error *err);
/* Takes the call; or returns false, with the refusal, and it stays the caller's. */
bool service_submit(struct service *s, struct call *c, struct api_refusal *refusal);
/* Nobody reads the call's response: the engine ends its requests. Several times for a call do no harm. */
void service_abandon(struct service *s, struct call *c);

const struct engine_info *service_engine(const struct service *s);
void service_stats(struct service *s, struct scheduler_stats *stats, int32_t *num_waiting);

/* ---- the end ---- */

/* A descriptor that can be read once the engine has failed, or once no call is open after service_drain. */
int service_event(const struct service *s);
bool service_failed(struct service *s, struct error *err);
void service_drain(struct service *s); /* takes no more calls */
/* Ends all calls; after it no function on their exchanges is called, and no call is taken. Also after a failure. */
void service_stop(struct service *s);
/* Closes the engines. After service_stop; NULL is allowed. */
void service_free(struct service *s);

/* ---- the delivery's thread ---- */

void service_ended(struct service *s, int32_t num_answers); /* a call with so many answers has ended */

#endif
