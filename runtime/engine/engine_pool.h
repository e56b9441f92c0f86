/* Several engines behind one queue of requests (data parallelism): alike but for their devices, each with weights, a KV
 * cache and a prefix cache of its own, and each stepped by a thread of its own. Its functions are those of engine.h,
 * so that a caller which was written for one engine stays right:
 *
 *     engine_pool_add ---> the engine with the least work ---> its thread: engine_step, pieces are copied
 *     caller's callbacks <--- engine_pool_step <--- those copies
 *
 * Threads. All calls belong to one thread but engine_pool_check, engine_pool_wake, engine_pool_stats and those that
 * give facts which do not change. The callbacks run on it, inside engine_pool_step, in the order in which each engine
 * made the pieces. A pool of one engine has no thread: every function is the engine's own.
 *
 * Answers. Which engine answers never shows: a request without a seed gets the one that it would get in one engine,
 * from its place in the order of engine_pool_add.
 *
 * A request goes where the least work waits, in tokens that are not computed yet; a prefix that an engine has seen
 * counts against its work (prefix_routes.h). What waits follows from the requests and from the pieces that were
 * delivered, so requests that are all added before the first step are always shared out alike.
 */
#ifndef QUIRE_RUNTIME_ENGINE_POOL_H
#define QUIRE_RUNTIME_ENGINE_POOL_H

#include "runtime/engine/engine.h"

enum { ENGINE_POOL_MAX = 64 };

struct engine_pool;

/* Opens options->data_parallel_size engines: at the same time if they have devices of their own. Their devices: "cpu",
 * which all share, each with its part of the threads and of the memory; "cuda:A,B,..", as many GPUs as the engines have
 * ranks together, in order; "cuda", the first ones that this process sees; "auto": "cuda" if there is a GPU, else
 * "cpu". All have the max_model_len and max_num_seqs of the engine that has room for the least. INVALID: there are not
 * so many GPUs; or the options have a trace or a drafter, which serve one engine. Where an engine of several fails, the
 * sentence begins with its number and device. */
enum status engine_pool_create(const struct engine_options *options, struct engine_pool **out, struct error *err);
/* As engine_destroy and engine_leave; steps that are running end first. NULL is allowed. */
void engine_pool_destroy(struct engine_pool *p);
void engine_pool_leave(struct engine_pool *p);

/* Ids are the pool's own, and never 0. */
enum status engine_pool_add(struct engine_pool *p, const struct engine_request *request, uint64_t *id,
                            struct error *err);
void engine_pool_abort(struct engine_pool *p, uint64_t id);

/* What engine_pool_add refuses of a request, as engine_check. */
enum status engine_pool_check(const struct engine_pool *p, const struct engine_request *request, struct error *err);

/* Delivers what the engines have made; if that is nothing, waits until one of them has ended a step, or for
 * engine_pool_wake. An error of an
 * engine ends the pool, as one of engine_step ends an engine, but pieces that were made before it are delivered. */
enum status engine_pool_step(struct engine_pool *p, bool *worked, struct error *err);
bool engine_pool_has_work(struct engine_pool *p);
/* As engine_wait and engine_wake: waits until engine_pool_has_work, or for a wake-up, which also ends the wait of a
 * step and is kept until one of both has returned. */
void engine_pool_wait(struct engine_pool *p);
void engine_pool_wake(struct engine_pool *p);
/* 0 where there are several engines: a thread that is not the caller's knows. */
int32_t engine_pool_num_computed(struct engine_pool *p, uint64_t id);

int engine_pool_size(const struct engine_pool *p);
const char *engine_pool_device(const struct engine_pool *p, int number); /* of an engine, from 0 */
/* Of the first engine: limits, memory and threads are those of one. */
const struct engine_info *engine_pool_info(const struct engine_pool *p);
int64_t engine_pool_max_num_seqs(const struct engine_pool *p); /* of all engines together */

/* Sums over the engines. */
void engine_pool_stats(struct engine_pool *p, struct scheduler_stats *stats);
int64_t engine_pool_blocks_unshared(struct engine_pool *p);
void engine_pool_reset_prefix_cache(struct engine_pool *p); /* only while engine_pool_has_work is false */

#endif
