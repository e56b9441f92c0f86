#include "runtime/engine/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"

struct trace {
    FILE *file;
    const char *path;
    const struct log *log;
    bool failed; /* a write failed: nothing is written any more */
    double start;
    struct trace_request *requests[TRACE_NUM_STATES]; /* lists */

    /* The step that is going on. Times are clock_seconds(). */
    double begin, last;
    struct {
        double begin, end; /* both 0: there was no such part */
    } parts[TRACE_NUM_PARTS];
    int64_t num_submitted, num_collected; /* steps, this one included */
    int32_t num_tokens, num_decodes, num_drafts, num_samples;
    bool drafts; /* steps may have some */
};

/* ---- the file ---- */

/* Refuses what is no trace, or is being written. */
static enum status check_file(int fd, const char *path, struct error *err)
{
    struct stat info;
    char first;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return STATUS_OK;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        return error_set(err, STATUS_IO,
                         "cannot write the trace %s: something else is written to it; name another file", path);
    if (info.st_size > 0 && (pread(fd, &first, 1, 0) != 1 || first != '['))
        return error_set(err, STATUS_INVALID,
                         "cannot write the trace %s: it exists and is no trace; name another file, or remove it", path);
    return STATUS_OK;
}

static enum status open_file(const char *path, FILE **out, struct error *err)
{
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return error_set(err, STATUS_IO, "cannot write the trace %s: %s", path, strerror(errno));
    struct stat info;
    enum status status = check_file(fd, path, err);
    if (status == STATUS_OK && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && ftruncate(fd, 0) != 0)
        status = error_set(err, STATUS_IO, "cannot write the trace %s: %s", path, strerror(errno));
    *out = status == STATUS_OK ? fdopen(fd, "w") : NULL;
    if (*out) return STATUS_OK;
    close(fd);
    return status != STATUS_OK ? status : error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the trace");
}

static void fail(struct trace *t)
{
    log_write(t->log, LOG_WARNING, "the trace %s ends here: cannot write: %s", t->path, strerror(errno));
    t->failed = true;
}

static void write_text(struct trace *t, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void write_text(struct trace *t, const char *format, ...)
{
    if (t->failed) return;
    va_list args;
    va_start(args, format);
    if (vfprintf(t->file, format, args) < 0) fail(t);
    va_end(args);
}

/* Times are written as whole nanoseconds, so that what ends together does so to the last digit. */
static long long nanoseconds(const struct trace *t, double time)
{
    return llround(1e9 * (time - t->start));
}

/* Begins an event of phase `phase` at `time`; the caller writes the rest of it, from a comma on or "}". */
static void begin_event(struct trace *t, const char *phase, const char *name, double time)
{
    const long long ns = nanoseconds(t, time);
    write_text(t, ",\n{\"ph\": \"%s\", \"pid\": 1, \"tid\": 1, \"name\": \"%s\", \"ts\": %lld.%03lld", phase, name,
               ns / 1000, ns % 1000);
}

enum status trace_open(const char *path, const struct log *log, struct trace **out, struct error *err)
{
    struct trace *t = calloc(1, sizeof *t);
    *out = NULL;
    if (!t) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the trace");
    enum status status = open_file(path, &t->file, err);
    if (status != STATUS_OK) {
        free(t);
        return status;
    }
    t->path = path;
    t->log = log;
    t->start = clock_seconds();
    write_text(t, "[\n{\"ph\": \"M\", \"pid\": 1, \"tid\": 1, \"name\": \"process_name\", \"args\": {\"name\": "
                  "\"quire\"}},\n{\"ph\": \"M\", \"pid\": 1, \"tid\": 1, \"name\": \"thread_name\", \"args\": "
                  "{\"name\": \"steps\"}}");
    *out = t;
    return STATUS_OK;
}

void trace_close(struct trace *t)
{
    if (!t) return;
    for (int state = 0; state < TRACE_NUM_STATES; state++)
        while (t->requests[state]) trace_request_end(t, t->requests[state]);
    write_text(t, "\n]\n");
    if (fclose(t->file) != 0 && !t->failed) fail(t);
    free(t);
}

double trace_now(const struct trace *t)
{
    return t ? clock_seconds() : 0;
}

/* ---- steps ---- */

void trace_step_begin(struct trace *t)
{
    if (!t) return;
    memset(t->parts, 0, sizeof t->parts);
    t->begin = t->last = clock_seconds();
    t->num_tokens = 0;
}

void trace_part_end(struct trace *t, enum trace_part part)
{
    if (!t) return;
    t->parts[part].begin = t->last;
    t->parts[part].end = t->last = clock_seconds();
    if (part == TRACE_COLLECT) t->num_collected++;
}

void trace_batch(struct trace *t, const struct batch *batch)
{
    if (!t) return;
    t->num_submitted++;
    t->num_tokens = batch->num_tokens;
    t->num_decodes = batch->num_decodes;
    t->num_drafts = batch->num_drafts;
    t->drafts = batch->limits.max_num_drafts > 0;
    t->num_samples = batch->num_samples;
}

static void begin_slice(struct trace *t, const char *name, double begin, double end)
{
    const long long ns = nanoseconds(t, end) - nanoseconds(t, begin);
    begin_event(t, "X", name, begin);
    write_text(t, ", \"dur\": %lld.%03lld", ns / 1000, ns % 1000);
}

static void end_submitting_slice(struct trace *t)
{
    if (t->num_tokens > 0)
        write_text(t, ", \"args\": {\"step\": %lld, \"num_tokens\": %d, \"num_decodes\": %d, \"num_samples\": %d",
                   (long long)t->num_submitted, t->num_tokens, t->num_decodes, t->num_samples);
    if (t->num_tokens > 0 && t->drafts) write_text(t, ", \"num_drafts\": %d", t->num_drafts);
    write_text(t, t->num_tokens > 0 ? "}}" : "}");
}

static void write_parts(struct trace *t)
{
    static const char *const names[] = {"schedule", "submit", "collect", "masks", "deliver"};
    for (int i = 0; i < TRACE_NUM_PARTS; i++) {
        if (t->parts[i].end == 0) continue;
        begin_slice(t, names[i], t->parts[i].begin, t->parts[i].end);
        if (i == TRACE_SUBMIT)
            end_submitting_slice(t);
        else if (i == TRACE_COLLECT)
            write_text(t, ", \"args\": {\"step\": %lld}}", (long long)t->num_collected);
        else
            write_text(t, "}");
    }
}

static void write_counters(struct trace *t, const struct scheduler_stats *s)
{
    begin_event(t, "C", "requests", t->last);
    write_text(t, ", \"args\": {\"running\": %d, \"waiting\": %d, \"swapped\": %d}}", s->num_running, s->num_waiting,
               s->num_swapped);
    begin_event(t, "C", "blocks", t->last);
    write_text(t, ", \"args\": {\"in use\": %d, \"cached\": %d, \"free\": %d}}", s->blocks_in_use, s->blocks_cached,
               s->blocks_free);
    begin_event(t, "C", "host blocks", t->last);
    write_text(t, ", \"args\": {\"in use\": %d}}", s->host_blocks_in_use);
    begin_event(t, "C", "preemptions", t->last);
    write_text(t, ", \"args\": {\"recompute\": %lld, \"swap\": %lld}}", (long long)s->preemptions_recompute,
               (long long)s->preemptions_swap);
    if (!t->drafts) return;
    begin_event(t, "C", "drafts", t->last);
    write_text(t, ", \"args\": {\"accepted\": %lld, \"rejected\": %lld}}", (long long)s->drafts_accepted,
               (long long)(s->drafts - s->drafts_accepted));
}

void trace_step_end(struct trace *t, bool worked, const struct scheduler_stats *stats)
{
    if (!t || !worked) return;
    begin_slice(t, "step", t->begin, t->last);
    end_submitting_slice(t);
    write_parts(t);
    write_counters(t, stats);
}

/* ---- requests ---- */

static const char *const state_names[] = {
    [TRACE_WAITING] = "waiting", [TRACE_RUNNING] = "running", [TRACE_SWAPPED] = "swapped"};

static void link_request(struct trace *t, struct trace_request *r, enum trace_state state)
{
    r->state = state;
    r->previous = NULL;
    r->next = t->requests[state];
    if (r->next) r->next->previous = r;
    t->requests[state] = r;
}

static void unlink_request(struct trace *t, struct trace_request *r)
{
    *(r->previous ? &r->previous->next : &t->requests[r->state]) = r->next;
    if (r->next) r->next->previous = r->previous;
}

/* Begins an event of a request; the caller writes the rest of it. */
static void begin_span_event(struct trace *t, const struct trace_request *r, const char *phase, const char *name,
                             double time)
{
    begin_event(t, phase, name, time);
    write_text(t, ", \"cat\": \"request\", \"id\": %llu", (unsigned long long)r->request->id);
}

static void state_event(struct trace *t, const struct trace_request *r, const char *phase, double time)
{
    begin_span_event(t, r, phase, state_names[r->state], time);
    write_text(t, "}");
}

void trace_request_begin(struct trace *t, struct trace_request *r, const struct request *request, double added)
{
    if (!t) return;
    r->request = request;
    link_request(t, r, TRACE_WAITING);
    begin_span_event(t, r, "b", "request", added);
    write_text(t, ", \"args\": {\"n\": %d, \"prompt_tokens\": %d}}", request->num_sequences,
               request->sequences[0].prompt_len);
    state_event(t, r, "b", added);
}

static void set_state(struct trace *t, struct trace_request *r, enum trace_state state)
{
    if (state == r->state) return;
    const double now = clock_seconds();
    state_event(t, r, "e", now);
    unlink_request(t, r);
    link_request(t, r, state);
    state_event(t, r, "b", now);
}

/* The scheduler keeps a request in the queue of its sequences: one that runs decides. */
static enum trace_state state_of(const struct trace_request *r)
{
    enum trace_state state = r->state; /* of a request that ended */
    for (int32_t i = 0; i < r->request->num_sequences; i++) {
        const enum sequence_status status = r->request->sequences[i].status;
        if (status == SEQUENCE_RUNNING) return TRACE_RUNNING;
        if (status == SEQUENCE_SWAPPED) state = TRACE_SWAPPED;
        if (status == SEQUENCE_WAITING) state = TRACE_WAITING;
    }
    return state;
}

void trace_request_started(struct trace *t, struct trace_request *r)
{
    if (t) set_state(t, r, TRACE_RUNNING);
}

void trace_requests_scheduled(struct trace *t)
{
    if (!t) return;
    for (struct trace_request *r = t->requests[TRACE_RUNNING], *next; r; r = next) {
        next = r->next;
        set_state(t, r, state_of(r));
    }
}

void trace_request_token(struct trace *t, struct trace_request *r)
{
    if (!t || r->answered) return;
    r->answered = true;
    begin_span_event(t, r, "n", "first token", clock_seconds());
    write_text(t, "}");
}

void trace_answer_end(struct trace *t, const struct trace_request *r, int32_t index, enum finish_reason reason,
                      int32_t output_tokens)
{
    if (!t) return;
    begin_span_event(t, r, "n", "answer", clock_seconds());
    write_text(t, ", \"args\": {\"index\": %d, \"finish_reason\": \"%s\", \"output_tokens\": %d}}", index,
               finish_reason_name(reason), output_tokens);
}

void trace_request_end(struct trace *t, struct trace_request *r)
{
    if (!t) return;
    const double now = clock_seconds();
    state_event(t, r, "e", now);
    begin_span_event(t, r, "e", "request", now);
    write_text(t, ", \"args\": {\"cached_tokens\": %d, \"preemptions\": %d}}", r->request->sequences[0].num_cached,
               r->request->num_preemptions);
    unlink_request(t, r);
}
