/* A Chrome trace of what the engine does: a JSON array of events, a line each, which Perfetto (ui.perfetto.dev) and
 * chrome://tracing show. It has
 *
 *     slices     a "step" for each engine_step that worked, and inside it "schedule", "submit", "collect", "deliver";
 * and "masks" where answers have grammars. step and submit say which step was submitted and what its batch holds,
 *                collect says which step was collected
 *     requests   an async span "request" for each that a step has read, from engine_add to its last piece.
 *                Inside it one of "waiting", "running" or "swapped" after the other,
 *                and the instants "first token" and, where an answer ended, "answer" with its finish reason
 *     counters   after each step: requests by state, blocks, host blocks in use, preemptions so far; and where steps
 * have drafts, those accepted and rejected so far
 *
 * A step copies nothing but numbers and writes through a buffer. If the file cannot be written any further, the trace
 * ends there with a warning, and the engine goes on.
 *
 * All functions but trace_now belong to the thread that steps. `t` is NULL where nothing is traced: they do nothing
 * then. */
#ifndef QUIRE_RUNTIME_TRACE_H
#define QUIRE_RUNTIME_TRACE_H

#include "base/batch.h"
#include "base/log.h"
#include "base/status.h"
#include "scheduler/scheduler.h"

struct trace;

enum trace_part { TRACE_SCHEDULE, TRACE_SUBMIT, TRACE_COLLECT, TRACE_MASKS, TRACE_DELIVER };
enum { TRACE_NUM_PARTS = TRACE_DELIVER + 1 };

/* Creates the file, or replaces a trace that is there; any other file is left alone, and so is one that another open
 * trace or an answer is written to. `path` is referred to. */
enum status trace_open(const char *path, const struct log *log, struct trace **out, struct error *err);
/* Ends the spans of requests that are not finished, and the file. */
void trace_close(struct trace *t);

double trace_now(const struct trace *t); /* clock_seconds(), or 0 if t is NULL */

/* ---- steps ---- */

void trace_step_begin(struct trace *t);
/* The part began where the part before it ended. A part that a step does not have is left out. */
void trace_part_end(struct trace *t, enum trace_part part);
/* The batch that is submitted in this step. */
void trace_batch(struct trace *t, const struct batch *batch);
/* A step that did nothing leaves no events. */
void trace_step_end(struct trace *t, bool worked, const struct scheduler_stats *stats);

/* ---- requests ---- */

enum trace_state { TRACE_WAITING, TRACE_RUNNING, TRACE_SWAPPED };
enum { TRACE_NUM_STATES = TRACE_SWAPPED + 1 };

/* What the trace keeps of a request; a member of the engine's job, zero before trace_request_begin. */
struct trace_request {
    const struct request *request;
    enum trace_state state;
    bool answered;                         /* it has its first token */
    struct trace_request *next, *previous; /* of the same state */
};

/* `added`: trace_now when it was added. It waits. */
void trace_request_begin(struct trace *t, struct trace_request *r, const struct request *request, double added);
/* A step was scheduled, which started this request, maybe again. */
void trace_request_started(struct trace *t, struct trace_request *r);
/* A step was scheduled: requests that were running may be waiting or swapped. */
void trace_requests_scheduled(struct trace *t);
/* The request got a token: the first one is shown. */
void trace_request_token(struct trace *t, struct trace_request *r);
/* One of its answers ended. */
void trace_answer_end(struct trace *t, const struct trace_request *r, int32_t index, enum finish_reason reason,
                      int32_t output_tokens);
/* All its answers have. */
void trace_request_end(struct trace *t, struct trace_request *r);

#endif
