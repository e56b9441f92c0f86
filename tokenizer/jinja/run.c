/* One rendering: its memory, its limits and its first failure. */
#include "tokenizer/jinja/value.h"

#include <stdalign.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"

enum {
    BLOCK_BYTES = 64 << 10, /* that malloc is asked for at a time; what is larger than a quarter gets its own block */
    TICKS_PER_CLOCK = 64,   /* calls of jinja_tick for each look at the clock */
    DEFAULT_SECONDS = 1,
    DEFAULT_BYTES = 64 << 20
};

struct jinja_block {
    struct jinja_block *next;
    size_t used, size; /* of bytes */
    alignas(max_align_t) char bytes[];
};

void jinja_run_begin(struct jinja_run *run, const struct jinja_context *context, struct error *err)
{
    *run = (struct jinja_run){.context = context, .err = err, .line = 1, .column = 1};
    run->max_bytes = context->max_bytes ? context->max_bytes : DEFAULT_BYTES;
    run->deadline = clock_seconds() + (context->seconds > 0 ? context->seconds : DEFAULT_SECONDS);
}

void jinja_run_end(struct jinja_run *run)
{
    while (run->blocks) {
        struct jinja_block *next = run->blocks->next;
        free(run->blocks);
        run->blocks = next;
    }
}

void jinja_fail(struct jinja_run *run, const char *format, ...)
{
    if (run->status) return;
    struct error sentence;
    va_list args;
    va_start(args, format);
    vsnprintf(sentence.text, sizeof sentence.text, format, args);
    va_end(args);
    run->status = error_set(run->err, STATUS_INVALID, "line %d, column %d: %s", run->line, run->column, sentence.text);
}

/* A new block with room for `size` bytes. The first block of the list is the one that small allocations come from, so a
 * block of its own for a large one goes behind it. */
static struct jinja_block *add_block(struct jinja_run *run, size_t size)
{
    const bool shared = size <= BLOCK_BYTES / 4;
    const size_t room = shared ? BLOCK_BYTES : size;
    if (room > run->max_bytes || run->bytes > run->max_bytes - room) {
        jinja_fail(run,
                   "the template needs more than %zu MiB of memory; shorten the conversation, or look for a loop that "
                   "makes a string or list ever longer",
                   run->max_bytes >> 20);
        return NULL;
    }
    struct jinja_block *block = calloc(1, sizeof *block + room);
    if (!block) {
        jinja_fail(run, "out of memory");
        if (run->status) run->status = STATUS_OUT_OF_MEMORY;
        return NULL;
    }
    run->bytes += room;
    block->size = room;
    struct jinja_block **place = shared || !run->blocks ? &run->blocks : &run->blocks->next;
    block->next = *place;
    *place = block;
    return block;
}

void *jinja_alloc(struct jinja_run *run, size_t size)
{
    if (jinja_failed(run)) return NULL;
    const size_t alignment = alignof(max_align_t);
    if (size > run->max_bytes) size = run->max_bytes + 1; /* refused below; and no overflow when it is rounded up */
    size = (size + alignment - 1) / alignment * alignment;
    struct jinja_block *block = run->blocks;
    if (!block || block->size - block->used < size) block = add_block(run, size);
    if (!block) return NULL;
    void *memory = block->bytes + block->used;
    block->used += size;
    return memory;
}

bool jinja_tick(struct jinja_run *run)
{
    if (jinja_failed(run)) return false;
    if (++run->ticks % TICKS_PER_CLOCK == 0 && clock_seconds() > run->deadline)
        jinja_fail(run, "the template takes longer than %g s; look for a loop that does not end",
                   run->context->seconds > 0 ? run->context->seconds : DEFAULT_SECONDS);
    return !jinja_failed(run);
}

bool jinja_enter(struct jinja_run *run)
{
    if (jinja_failed(run)) return false;
    if (run->depth == JINJA_MAX_DEPTH) {
        jinja_fail(run, "nested more than %d levels deep", JINJA_MAX_DEPTH);
        return false;
    }
    run->depth++;
    return true;
}

void jinja_leave(struct jinja_run *run)
{
    run->depth--;
}
