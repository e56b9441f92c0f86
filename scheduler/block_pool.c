#include "scheduler/block_pool.h"

#include <stdlib.h>
#include <string.h>

#include "scheduler/prefix_cache.h"

_Static_assert(sizeof(struct block) == 16, "a pool of millions of blocks must stay small");

static bool has_prefix(const struct block *b)
{
    return b->prefix != PREFIX_NONE;
}

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
    if (pool->oldest == block) pool->oldest = b->next;
    pool->num_free--;
    if (has_prefix(b)) pool->num_cached--;
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
    if (has_prefix(b)) pool->num_cached++;
}

/* A block of count 0 waits where its state says. */
static void list_return(struct block_pool *pool, int32_t block)
{
    if (has_prefix(&pool->blocks[block])) {
        list_insert(pool, block, pool->tail, BLOCK_NONE);
        if (pool->oldest == BLOCK_NONE) pool->oldest = block;
    } else {
        list_insert(pool, block, BLOCK_NONE, pool->head);
    }
}

enum status block_pool_init(struct block_pool *pool, int32_t first, int32_t num_blocks, struct error *err)
{
    *pool = (struct block_pool){
        .first = first, .end = first, .head = BLOCK_NONE, .tail = BLOCK_NONE, .oldest = BLOCK_NONE, .untaken = first};
    return block_pool_grow(pool, num_blocks, err);
}

enum status block_pool_grow(struct block_pool *pool, int32_t num_blocks, struct error *err)
{
    if (num_blocks == 0) return STATUS_OK;
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

static bool in_pool(const struct block_pool *pool, int32_t block)
{
    return block >= pool->first && block < pool->end;
}

static bool can_take(const struct block_pool *pool, int32_t block)
{
    return in_pool(pool, block) && pool->blocks[block].ref_count == 0;
}

int32_t block_pool_take(struct block_pool *pool, int32_t *evicted)
{
    *evicted = PREFIX_NONE;
    if (pool->head != BLOCK_NONE && !can_take(pool, pool->head)) return BLOCK_NONE;
    bool untaken = pool->untaken < pool->end && (pool->head == BLOCK_NONE || has_prefix(&pool->blocks[pool->head]));
    int32_t block = untaken ? pool->untaken : pool->head;
    if (!can_take(pool, block)) return BLOCK_NONE;
    if (untaken) {
        pool->untaken++;
        pool->num_free--;
    } else {
        list_remove(pool, block);
    }
    struct block *b = &pool->blocks[block];
    *evicted = b->prefix;
    b->prefix = PREFIX_NONE;
    b->filled = b->note = 0;
    b->ref_count = 1;
    return block;
}

enum status block_pool_share(struct block_pool *pool, int32_t block, int32_t block_size, struct error *err)
{
    if (!in_pool(pool, block))
        return error_set(err, STATUS_INTERNAL, "block %d is shared, but blocks are numbered %d to %d", block,
                         pool->first, pool->end - 1);
    struct block *b = &pool->blocks[block];
    if (b->ref_count < 0 || (b->ref_count == 0 && !has_prefix(b)))
        return error_set(err, STATUS_INTERNAL, "block %d is shared, but it is free (count %d)", block, b->ref_count);
    if (b->ref_count == 0) {
        list_remove(pool, block);
        b->filled = block_size;
        b->note = 0;
    }
    b->ref_count++;
    return STATUS_OK;
}

enum status block_pool_release(struct block_pool *pool, int32_t block, struct error *err)
{
    if (block == 0) return error_set(err, STATUS_INTERNAL, "release of block 0, the null block");
    if (!in_pool(pool, block))
        return error_set(err, STATUS_INTERNAL, "release of block %d, but blocks are numbered %d to %d", block,
                         pool->first, pool->end - 1);
    struct block *b = &pool->blocks[block];
    if (b->ref_count <= 0)
        return error_set(err, STATUS_INTERNAL, "release of block %d, which is free already (count %d)", block,
                         b->ref_count);
    if (--b->ref_count == 0) list_return(pool, block);
    return STATUS_OK;
}

void block_pool_set_prefix(struct block_pool *pool, int32_t block, int32_t prefix)
{
    struct block *b = &pool->blocks[block];
    bool moves = b->ref_count == 0 && has_prefix(b) && prefix == PREFIX_NONE;
    if (moves) list_remove(pool, block);
    b->prefix = prefix;
    if (moves) list_return(pool, block);
}

enum status block_pool_fill(struct block_pool *pool, int32_t block, int32_t block_size, int32_t offset, int32_t count,
                            struct error *err)
{
    if (!in_pool(pool, block))
        return error_set(err, STATUS_INTERNAL, "slots of block %d are written, but blocks are numbered %d to %d", block,
                         pool->first, pool->end - 1);
    struct block *b = &pool->blocks[block];
    int32_t filled = b->ref_count > 0 ? b->filled : 0;
    if (b->ref_count != 1 || offset != filled || count > block_size - offset)
        return error_set(err, STATUS_INTERNAL,
                         "slots %d to %d of block %d are written, but its count is %d and its first %d of %d slots "
                         "were filled",
                         offset, offset + count - 1, block, b->ref_count, filled, block_size);
    b->filled = offset + count;
    return STATUS_OK;
}

enum status block_pool_unfill(struct block_pool *pool, int32_t block, int32_t filled, struct error *err)
{
    const struct block *b = in_pool(pool, block) ? &pool->blocks[block] : NULL;
    if (!b || b->ref_count != 1 || has_prefix(b) || filled < 0 || filled > b->filled)
        return error_set(err, STATUS_INTERNAL,
                         "block %d keeps its first %d slots, but it is not one holder's own, or has fewer", block,
                         filled);
    pool->blocks[block].filled = filled;
    return STATUS_OK;
}

int32_t block_pool_num_total(const struct block_pool *pool)
{
    return pool->end - pool->first;
}

int32_t block_pool_num_in_use(const struct block_pool *pool)
{
    return block_pool_num_total(pool) - pool->num_free;
}

static enum status check_list(const struct block_pool *pool, struct error *err)
{
    int32_t length = 0, cached = 0, oldest = BLOCK_NONE, previous = BLOCK_NONE;
    for (int32_t i = pool->head; i != BLOCK_NONE; i = pool->blocks[i].next) {
        if (i < pool->first || i >= pool->untaken || ++length > pool->num_free)
            return error_set(err, STATUS_INTERNAL, "the free list has a loop or leads to block %d", i);
        const struct block *b = &pool->blocks[i];
        if (b->previous != previous || b->ref_count != 0)
            return error_set(err, STATUS_INTERNAL, "block %d of the free list: count %d, previous %d instead of %d", i,
                             b->ref_count, b->previous, previous);
        if (cached && !has_prefix(b))
            return error_set(err, STATUS_INTERNAL, "free block %d waits behind a cached one", i);
        if (has_prefix(b) && cached++ == 0) oldest = i;
        previous = i;
    }
    length += pool->end - pool->untaken;
    if (oldest != pool->oldest)
        return error_set(err, STATUS_INTERNAL, "the oldest cached block is %d, and not %d", oldest, pool->oldest);
    if (length == pool->num_free && cached == pool->num_cached && previous == pool->tail) return STATUS_OK;
    return error_set(err, STATUS_INTERNAL, "the free list holds %d blocks (%d cached), but %d (%d) were counted",
                     length, cached, pool->num_free, pool->num_cached);
}

static enum status check_block(const struct block_pool *pool, int32_t block, struct error *err)
{
    const struct block *b = &pool->blocks[block];
    if (b->ref_count < 0) return error_set(err, STATUS_INTERNAL, "block %d has the count %d", block, b->ref_count);
    if (block >= pool->untaken && (b->ref_count > 0 || has_prefix(b)))
        return error_set(err, STATUS_INTERNAL, "block %d is in use or cached, but was never taken", block);
    if (b->ref_count > 0 && b->note != 0)
        return error_set(err, STATUS_INTERNAL, "block %d, in use, has the note %d", block, b->note);
    if (b->ref_count > 0 && b->filled < 0)
        return error_set(err, STATUS_INTERNAL, "%d slots of block %d are filled", b->filled, block);
    return STATUS_OK;
}

enum status block_pool_check(const struct block_pool *pool, struct error *err)
{
    int32_t in_use = 0;
    for (int32_t i = pool->first; i < pool->end; i++) {
        enum status status = check_block(pool, i, err);
        if (status != STATUS_OK) return status;
        in_use += pool->blocks[i].ref_count > 0;
    }
    if (in_use != block_pool_num_in_use(pool))
        return error_set(err, STATUS_INTERNAL, "%d blocks are in use and %d free, of %d", in_use, pool->num_free,
                         block_pool_num_total(pool));
    if (pool->blocks && (pool->blocks[0].ref_count != 0 || has_prefix(&pool->blocks[0])))
        return error_set(err, STATUS_INTERNAL, "the null block is held or cached");
    return check_list(pool, err);
}
