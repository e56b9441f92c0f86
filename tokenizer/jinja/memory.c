/* The memory of a rendering.
 *
 * What jinja_alloc gives is a *cell* behind a header. Small cells lie in blocks, a large one has a block of its own:
 *
 *     block | next, place, size | header cell | header cell | hole        | header cell | hole |
 *
 * A hole is what follows the cells of a new block, and what dead cells leave; it has a header, too, so that a block can
 * be walked from its beginning. Small cells are cut from one hole after another.
 *
 * jinja_collect marks the cells that are reached from the roots and makes holes of all others, or gives their blocks
 * back. Lists, dicts and objects that are reached wait in a list until what they refer to is reached, too, so that the
 * depth of values costs no stack. */
#include <assert.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/jinja/library.h"

enum {
    UNIT = alignof(max_align_t), /* sizes are multiples of it */
    BLOCK_BYTES = 64 << 10,
    MAX_SMALL = BLOCK_BYTES / 4, /* bytes of a cell that shares a block */
    MIN_HOLE = 4 * UNIT,         /* a smaller one is left until it is part of a larger one */
    FIRST_COLLECTION = 4 << 20,  /* bytes in use; most renderings stay below it */
#ifdef NDEBUG
    EAGER = 0
#else
    EAGER = 1 /* collect so often that a value which no root reaches is noticed, and overwrite what is freed */
#endif
};

struct jinja_cell {
    struct jinja_cell *next; /* that waits to be looked into; of a hole: the next hole */
    uint32_t units;          /* of a small cell or a hole, with the header */
    bool is_reached, is_large;
    uint8_t kind; /* enum jinja_kind, of a cell that waits */
};
static_assert(sizeof(struct jinja_cell) % UNIT == 0, "cells are aligned");

struct jinja_block {
    struct jinja_block *next, **place; /* place: what points to this block */
    size_t size;                       /* of bytes */
    alignas(max_align_t) char bytes[];
};

/* --- blocks --- */

/* Counts `more` bytes, if they may be had. */
static bool count_bytes(struct jinja_run *run, size_t more)
{
    if (more <= run->max_bytes && run->bytes <= run->max_bytes - more) {
        run->bytes += more;
        return true;
    }
    return jinja_fail(
        run,
        "the template needs more than %zu MiB of memory; shorten the conversation, or look for a loop that "
        "makes a string or list ever longer",
        run->max_bytes >> 20);
}

static void *fail_memory(struct jinja_run *run)
{
    jinja_fail(run, "out of memory");
    run->status = STATUS_OUT_OF_MEMORY;
    return NULL;
}

static void link_block(struct jinja_block *block, struct jinja_block **place)
{
    block->place = place;
    *place = block;
    if (block->next) block->next->place = &block->next;
}

static struct jinja_block *add_block(struct jinja_run *run, struct jinja_block **list, size_t size)
{
    if (!count_bytes(run, size)) return NULL;
    struct jinja_block *block = calloc(1, sizeof *block + size);
    if (!block) return fail_memory(run);
    block->next = *list;
    block->size = size;
    link_block(block, list);
    return block;
}

static void free_block(struct jinja_run *run, struct jinja_block *block)
{
    *block->place = block->next;
    if (block->next) block->next->place = block->place;
    run->bytes -= block->size;
    free(block);
}

void jinja_run_end(struct jinja_run *run)
{
    while (run->blocks) free_block(run, run->blocks);
    while (run->large) free_block(run, run->large);
}

/* --- cells --- */

static struct jinja_cell *cell_of(const void *memory)
{
    return (struct jinja_cell *)memory - 1;
}

static struct jinja_block *block_of_large(struct jinja_cell *cell)
{
    return (struct jinja_block *)((char *)cell - offsetof(struct jinja_block, bytes));
}

/* Ends what cells are cut from: the rest is a hole that nobody uses. */
static void close_hole(struct jinja_run *run)
{
    if (run->hole < run->hole_end)
        *(struct jinja_cell *)run->hole = (struct jinja_cell){.units = (uint32_t)((run->hole_end - run->hole) / UNIT)};
    run->hole = run->hole_end = NULL;
}

/* Makes run->hole one with room for `size` bytes. */
static bool open_hole(struct jinja_run *run, size_t size)
{
    close_hole(run);
    while (run->holes) {
        struct jinja_cell *hole = run->holes;
        run->holes = hole->next;
        if ((size_t)hole->units * UNIT < size) continue;
        run->hole = (char *)hole;
        run->hole_end = run->hole + (size_t)hole->units * UNIT;
        return true;
    }
    struct jinja_block *block = add_block(run, &run->blocks, BLOCK_BYTES);
    if (!block) return false;
    run->hole = block->bytes;
    run->hole_end = run->hole + BLOCK_BYTES;
    return true;
}

static size_t small_size(size_t size)
{
    return sizeof(struct jinja_cell) + (size + UNIT - 1) / UNIT * UNIT;
}

void *jinja_alloc(struct jinja_run *run, size_t size)
{
    if (jinja_failed(run)) return NULL;
    if (size > MAX_SMALL) {
        if (size > run->max_bytes) size = run->max_bytes; /* refused; and no overflow */
        struct jinja_block *block = add_block(run, &run->large, sizeof(struct jinja_cell) + size);
        if (!block) return NULL;
        struct jinja_cell *cell = (struct jinja_cell *)block->bytes;
        cell->is_large = true;
        return cell + 1;
    }
    const size_t whole = small_size(size);
    if ((size_t)(run->hole_end - run->hole) < whole && !open_hole(run, whole)) return NULL;
    struct jinja_cell *cell = (struct jinja_cell *)run->hole;
    run->hole += whole;
    *cell = (struct jinja_cell){.units = (uint32_t)(whole / UNIT)};
    return memset(cell + 1, 0, whole - sizeof *cell);
}

static void *grow_large(struct jinja_run *run, struct jinja_block *block, size_t size)
{
    if (size > run->max_bytes) size = run->max_bytes;
    size += sizeof(struct jinja_cell);
    if (size > block->size && !count_bytes(run, size - block->size)) return NULL;
    struct jinja_block *moved = realloc(block, sizeof *block + size);
    if (!moved) return fail_memory(run);
    moved->size = size;
    link_block(moved, moved->place);
    return moved->bytes + sizeof(struct jinja_cell);
}

void *jinja_grow(struct jinja_run *run, void *memory, size_t old_size, size_t size)
{
    if (!memory) return jinja_alloc(run, size);
    if (jinja_failed(run)) return NULL;
    struct jinja_cell *cell = cell_of(memory);
    if (cell->is_large) return grow_large(run, block_of_large(cell), size);
    const size_t old = (size_t)cell->units * UNIT, more = size > MAX_SMALL ? SIZE_MAX : small_size(size) - old;
    if ((char *)cell + old == run->hole && more <= (size_t)(run->hole_end - run->hole)) {
        run->hole += more;
        cell->units += (uint32_t)(more / UNIT);
        return memory;
    }
    void *moved = jinja_alloc(run, size);
    return moved ? memcpy(moved, memory, old_size) : NULL;
}

bool jinja_reserve_one(struct jinja_run *run, void *data, size_t *capacity, size_t count, size_t element_size)
{
    if (jinja_failed(run)) return false;
    if (count < *capacity) return true;
    size_t wanted = *capacity ? *capacity * 2 : 4;
    void *old;
    memcpy(&old, data, sizeof old); /* `data` is the address of a pointer of any type */
    void *grown = jinja_grow(run, old, count * element_size, wanted * element_size);
    if (!grown) return false;
    memcpy(data, &grown, sizeof grown);
    *capacity = wanted;
    return true;
}

/* --- reaching --- */

bool jinja_reach_memory(const void *memory)
{
    if (!memory || cell_of(memory)->is_reached) return false;
    cell_of(memory)->is_reached = true;
    return true;
}

static void reach_string(const struct jinja_string *s)
{
    if (s->is_cell && jinja_reach_memory(s)) jinja_reach_buffer(s->buffer);
}

void jinja_reach_buffer(const struct jinja_buffer *buffer)
{
    if (jinja_reach_memory(buffer)) jinja_reach_memory(buffer->marks);
}

void jinja_reach(struct jinja_run *run, struct jinja_value v)
{
    switch (v.kind) {
    case JINJA_UNDEFINED:
        if (v.missing_is_cell) jinja_reach_memory(v.missing);
        break;
    case JINJA_STRING:
    case JINJA_BIG_INT:
        reach_string(v.string);
        break;
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_DICT:
    case JINJA_OBJECT:
        if (jinja_reach_memory(v.list)) { /* whichever it is, the pointer is there */
            struct jinja_cell *cell = cell_of(v.list);
            cell->kind = (uint8_t)v.kind;
            cell->next = run->waiting;
            run->waiting = cell;
        }
        break;
    default:
        break;
    }
}

static void reach_items(struct jinja_run *run, const struct jinja_list *list)
{
    jinja_reach_memory(list->items);
    for (size_t i = 0; i < list->count; i++) jinja_reach(run, list->items[i]);
}

static void reach_pairs(struct jinja_run *run, const struct jinja_dict *dict)
{
    jinja_reach_memory(dict->pairs);
    jinja_reach_memory(dict->index);
    for (size_t i = 0; i < dict->count; i++) {
        jinja_reach(run, dict->pairs[i].key);
        jinja_reach(run, dict->pairs[i].value);
    }
}

static void look_into_waiting(struct jinja_run *run)
{
    while (run->waiting) {
        struct jinja_cell *cell = run->waiting;
        run->waiting = cell->next;
        struct jinja_object *object = (struct jinja_object *)(cell + 1);
        if (cell->kind == JINJA_DICT)
            reach_pairs(run, (const struct jinja_dict *)(cell + 1));
        else if (cell->kind != JINJA_OBJECT)
            reach_items(run, (const struct jinja_list *)(cell + 1));
        else if (object->type->reach)
            object->type->reach(run, object);
    }
}

/* --- freeing --- */

static void add_hole(struct jinja_run *run, struct jinja_cell *hole)
{
    const size_t size = (size_t)hole->units * UNIT;
    if (EAGER) memset(hole + 1, 0xDD, size - sizeof *hole);
    if (size < MIN_HOLE) return;
    hole->next = run->holes;
    run->holes = hole;
}

static void sweep_block(struct jinja_run *run, struct jinja_block *block)
{
    struct jinja_cell *hole = NULL;
    for (size_t at = 0; at < block->size;) {
        struct jinja_cell *cell = (struct jinja_cell *)(block->bytes + at);
        at += (size_t)cell->units * UNIT;
        if (!cell->is_reached && hole) {
            hole->units += cell->units;
        } else if (!cell->is_reached) {
            hole = cell;
        } else if (hole) {
            add_hole(run, hole);
            hole = NULL;
        }
        cell->is_reached = false;
    }
    if (hole && (size_t)hole->units * UNIT == block->size)
        free_block(run, block);
    else if (hole)
        add_hole(run, hole);
}

static void sweep(struct jinja_run *run)
{
    run->holes = NULL;
    for (struct jinja_block *next, *block = run->blocks; block; block = next) {
        next = block->next;
        sweep_block(run, block);
    }
    for (struct jinja_block *next, *block = run->large; block; block = next) {
        next = block->next;
        struct jinja_cell *cell = (struct jinja_cell *)block->bytes;
        if (!cell->is_reached)
            free_block(run, block);
        else
            cell->is_reached = false;
    }
}

/* The next collection is when as much again is in use, so that all of them together cost no more than what was made;
 * or earlier, when half of what is left is. */
static void plan_next(struct jinja_run *run)
{
    const size_t left = run->max_bytes > run->bytes ? run->max_bytes - run->bytes : 0;
    const size_t more = run->bytes > FIRST_COLLECTION ? run->bytes : FIRST_COLLECTION;
    run->collect_at = run->bytes + (more < left / 2 ? more : left / 2);
    run->collect_at_tick = run->ticks + 1 + (uint32_t)(run->bytes >> 12);
}

static bool is_due(const struct jinja_run *run)
{
    return run->bytes >= run->collect_at || (EAGER && run->ticks >= run->collect_at_tick);
}

void jinja_collect(struct jinja_run *run)
{
    if (!is_due(run) || !run->reach_roots || jinja_failed(run)) return;
    if (run->collect_at) { /* not the first time, when all is alive */
        close_hole(run);
        run->reach_roots(run);
        look_into_waiting(run);
        sweep(run);
    }
    plan_next(run);
}
