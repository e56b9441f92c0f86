#include "scheduler/block_pool.h"

#include <stdlib.h>
#include <string.h>

static void list_remove(struct block_pool *pool, int32_t block)
{
    struct block *b = &pool->blocks[block];
    if (b->previous == BLOCK_NONE)
        pool->head = b->next;
    else
        pool->blocks[b->previous].next = b->next;
    if (b->next == BLOCK_NONE)
        pool->tail = b->previous;
    else
        pool->blocks[b->next].previous = b->previous;
    b->previous = b->next = BLOCK_NONE;
    pool->num_free--;
    if (b->cached) pool->num_cached--;
}

/* Between two neighbours of the list, either of which may be BLOCK_NONE: its end. */
static void list_insert(struct block_pool *pool, int32_t block, int32_t previous, int32_t next)
{
    struct block *b = &pool->blocks[block];
    b->previous = previous;
    b->next = next;
    if (previous == BLOCK_NONE)
        pool->head = block;
    else
        pool->blocks[previous].next = block;
    if (next == BLOCK_NONE)
        pool->tail = block;
    else
        pool->blocks[next].previous = block;
    pool->num_free++;
    if (b->cached) pool->num_cached++;
}

enum status block_pool_init(struct block_pool *pool, int32_t first, int32_t num_blocks, struct error *err)
{
    *pool = (struct block_pool){.first = first, .end = first, .untaken = first, .head = BLOCK_NONE, .tail = BLOCK_NONE};
    return block_pool_grow(pool, num_blocks, err);
}

enum status block_pool_grow(struct block_pool *pool, int32_t num_blocks, struct error *err)
{
    const int32_t end = pool->end + num_blocks;
    const bool is_new = !pool->blocks; /* calloc of a large array costs no memory before a page is touched */
    const size_t bytes = (size_t)end * sizeof *pool->blocks;
    struct block *blocks = is_new ? calloc(1, bytes) : realloc(pool->blocks, bytes);
    if (!blocks)
        return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the table of %d KV cache blocks", end);
    if (!is_new) memset(blocks + pool->end, 0, (size_t)num_blocks * sizeof *blocks);
    pool->blocks = blocks;
    pool->end = end;
    pool->num_free += num_blocks;
    return STATUS_OK;
}

void block_pool_free(struct block_pool *pool)
{
    free(pool->blocks);
    *pool = (struct block_pool){0};
}

static bool is_free(const struct block_pool *pool, int32_t block)
{
    return block >= pool->first && block < pool->end && pool->blocks[block].ref_count == 0;
}

static void take_untaken(struct block_pool *pool)
{
    struct block *b = &pool->blocks[pool->untaken++];
    b->previous = b->next = BLOCK_NONE;
    pool->num_free--;
}

int32_t block_pool_take(struct block_pool *pool, bool *evicted)
{
    *evicted = false;
    if (pool->head != BLOCK_NONE && !is_free(pool, pool->head)) return BLOCK_NONE;
    bool untaken = pool->untaken < pool->end && (pool->head == BLOCK_NONE || pool->blocks[pool->head].cached);
    int32_t block = untaken ? pool->untaken : pool->head;
    if (!is_free(pool, block)) return BLOCK_NONE;
    if (untaken)
        take_untaken(pool);
    else
        list_remove(pool, block);
    struct block *b = &pool->blocks[block];
    *evicted = b->cached;
    b->cached = false;
    b->filled = 0;
    b->ref_count = 1;
    return block;
}

enum status block_pool_share(struct block_pool *pool, int32_t block, struct error *err)
{
    if (block < pool->first || block >= pool->end)
        return error_set(err, STATUS_INTERNAL, "block %d is shared, but blocks are numbered %d to %d", block,
                         pool->first, pool->end - 1);
    struct block *b = &pool->blocks[block];
    if (b->ref_count < 0 || (b->ref_count == 0 && !b->cached))
        return error_set(err, STATUS_INTERNAL, "block %d is shared, but it is free (count %d)", block, b->ref_count);
    if (b->ref_count == 0) list_remove(pool, block);
    b->ref_count++;
    return STATUS_OK;
}

enum status block_pool_release(struct block_pool *pool, int32_t block, struct error *err)
{
    if (block == 0) return error_set(err, STATUS_INTERNAL, "release of block 0, the null block");
    if (block < pool->first || block >= pool->end)
        return error_set(err, STATUS_INTERNAL, "release of block %d, but blocks are numbered %d to %d", block,
                         pool->first, pool->end - 1);
    struct block *b = &pool->blocks[block];
    if (b->ref_count <= 0)
        return error_set(err, STATUS_INTERNAL, "release of block %d, which is free already (count %d)", block,
                         b->ref_count);
    if (--b->ref_count > 0) return STATUS_OK;
    if (b->cached)
        list_insert(pool, block, pool->tail, BLOCK_NONE);
    else
        list_insert(pool, block, BLOCK_NONE, pool->head);
    return STATUS_OK;
}

void block_pool_set_cached(struct block_pool *pool, int32_t block, bool cached)
{
    struct block *b = &pool->blocks[block];
    if (b->ref_count == 0) pool->num_cached += (int32_t)cached - (int32_t)b->cached;
    b->cached = cached;
}

enum status block_pool_fill(struct block_pool *pool, int32_t block, int32_t offset, int32_t count, struct error *err)
{
    struct block *b = &pool->blocks[block];
    bool sound = block > 0 && b->ref_count == 1 && b->filled == offset;
    int32_t was = b->filled;
    b->filled = offset + count;
    if (sound) return STATUS_OK;
    return error_set(err, STATUS_INTERNAL,
                     "slots %d to %d of block %d are written, but its count is %d and its first %d slots were filled",
                     offset, offset + count - 1, block, b->ref_count, was);
}

int32_t block_pool_num_total(const struct block_pool *pool)
{
    return pool->end - pool->first;
}

int32_t block_pool_num_in_use(const struct block_pool *pool)
{
    return block_pool_num_total(pool) - pool->num_free;
}

int64_t block_pool_num_filled(const struct block_pool *pool)
{
    int64_t filled = 0;
    for (int32_t i = pool->first; i < pool->untaken; i++)
        if (pool->blocks[i].ref_count > 0) filled += pool->blocks[i].filled;
    return filled;
}

static enum status check_list(const struct block_pool *pool, struct error *err)
{
    int32_t length = 0, cached = 0, previous = BLOCK_NONE;
    for (int32_t i = pool->head; i != BLOCK_NONE; i = pool->blocks[i].next) {
        if (i < pool->first || i >= pool->untaken || ++length > pool->num_free)
            return error_set(err, STATUS_INTERNAL, "the free list has a loop or leads to block %d", i);
        const struct block *b = &pool->blocks[i];
        if (b->previous != previous || b->ref_count != 0)
            return error_set(err, STATUS_INTERNAL, "block %d of the free list: count %d, previous %d instead of %d", i,
                             b->ref_count, b->previous, previous);
        cached += b->cached;
        previous = i;
    }
    length += pool->end - pool->untaken;
    if (length == pool->num_free && cached == pool->num_cached && previous == pool->tail) return STATUS_OK;
    return error_set(err, STATUS_INTERNAL, "the free list holds %d blocks (%d cached), but %d (%d) were counted",
                     length, cached, pool->num_free, pool->num_cached);
}

enum status block_pool_check(const struct block_pool *pool, struct error *err)
{
    int32_t in_use = 0;
    for (int32_t i = pool->first; i < pool->end; i++) {
        if (pool->blocks[i].ref_count < 0)
            return error_set(err, STATUS_INTERNAL, "block %d has the count %d", i, pool->blocks[i].ref_count);
        if (i >= pool->untaken && pool->blocks[i].ref_count > 0)
            return error_set(err, STATUS_INTERNAL, "block %d is in use, but was never taken", i);
        in_use += pool->blocks[i].ref_count > 0;
    }
    if (in_use != block_pool_num_in_use(pool))
        return error_set(err, STATUS_INTERNAL, "%d blocks are in use and %d free, of %d", in_use, pool->num_free,
                         block_pool_num_total(pool));
    if (pool->blocks[0].ref_count != 0 || pool->blocks[0].cached)
        return error_set(err, STATUS_INTERNAL, "the null block is held or cached");
    return check_list(pool, err);
}
