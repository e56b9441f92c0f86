/* One rendering: its memory, its limits and its first failure. */

#include <stdarg.h>
#include <stdio.h>

#include "base/clock.h"
#include "tokenizer/jinja/library.h"

enum {
    TICKS_PER_CLOCK = 64, /* calls of jinja_tick for each look at the clock */
    DEFAULT_SECONDS = 1,
    DEFAULT_BYTES = 64 << 20,
    MEMORY_PER_BYTE = 16,          /* of the variables */
    BYTES_PER_SECOND = 1000 * 1000 /* of the variables: a megabyte allows one second more */
};

void jinja_run_begin(struct jinja_run *run, const struct jinja_context *context, struct error *err)
{
    *run = (struct jinja_run){.context = context, .err = err, .line = 1, .column = 1};
    run->max_bytes = context->max_bytes ? context->max_bytes : DEFAULT_BYTES;
    run->seconds = context->seconds > 0 ? context->seconds : DEFAULT_SECONDS;
    run->began = clock_thread_seconds();
}

void jinja_run_allow(struct jinja_run *run, size_t bytes)
{
    run->max_bytes += bytes * MEMORY_PER_BYTE;
    run->seconds += (double)bytes / BYTES_PER_SECOND;
}

static void fail(struct jinja_run *run, const char *format, va_list args)
{
    struct error sentence;
    if (run->status) return;
    vsnprintf(sentence.text, sizeof sentence.text, format, args);
    run->status = error_set(run->err, STATUS_INVALID, "line %d, column %d: %s", run->line, run->column, sentence.text);
}

bool jinja_fail(struct jinja_run *run, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fail(run, format, args);
    va_end(args);
    return false;
}

struct jinja_value jinja_error(struct jinja_run *run, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fail(run, format, args);
    va_end(args);
    return jinja_undefined(NULL);
}

/* Whether the time is up. What other processes take of the processor does not count: a busy machine must not stop a
 * template. To ask for the thread's own time takes long, so that is done when as much time has passed. */
static bool is_late(struct jinja_run *run)
{
    const double now = clock_seconds();
    if (now < run->deadline) return false;
    const double left = run->began + run->seconds - clock_thread_seconds();
    run->deadline = now + left;
    return left <= 0;
}

bool jinja_tick(struct jinja_run *run)
{
    if (jinja_failed(run)) return false;
    if (++run->ticks % TICKS_PER_CLOCK == 0 && is_late(run))
        jinja_fail(run, "the template takes longer than %.3g s; look for a loop that does not end", run->seconds);
    return !jinja_failed(run);
}

bool jinja_enter(struct jinja_run *run)
{
    if (jinja_failed(run)) return false;
    if (run->depth == JINJA_MAX_DEPTH) return jinja_fail(run, "nested more than %d levels deep", JINJA_MAX_DEPTH);
    run->depth++;
    return true;
}

void jinja_leave(struct jinja_run *run)
{
    run->depth--;
}
