/* The physical blocks: one array of reference counts with an intrusive doubly-linked free list. Taking, sharing and
 * releasing a block are O(1), and only block_pool_init and block_pool_grow allocate memory. The pool knows block
 * numbers, never the memory that they stand for.
 *
 * Block 0 is the null block: it is never taken, and pads block tables. The device's blocks and the host's are two
 * pools; the host's numbers follow the device's. A block other than 0 is in one of three states:
 *
 *     in use   count > 0
 *     cached   count 0, but its contents and its identity in the prefix cache are kept; it is in the free list
 *     free     count 0, no identity; it is in the free list, or was never taken
 *
 *     head -> [ free, last released first ]   (never taken: untaken .. end)   [ cached, first released first ] <- tail
 *
 * Blocks are taken from left to right. Those that were never taken are not linked into the list, so that a pool of
 * millions of blocks costs no memory before they are used.
 */
#ifndef QUIRE_SCHEDULER_BLOCK_POOL_H
#define QUIRE_SCHEDULER_BLOCK_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#define BLOCK_NONE (-1)

struct block {
    int32_t ref_count;
    union {
        int32_t previous; /* of count 0: its neighbour in the free list; BLOCK_NONE: it is the first */
        int32_t note;     /* in use: what the block manager notes while it counts or moves blocks; otherwise 0 */
    };
    union {
        int32_t next;   /* of count 0: the other neighbour; BLOCK_NONE: it is the last */
        int32_t filled; /* in use: slots written since the block was taken, submitted steps included. A cached block is
                           full: block_pool_share sets this again */
    };
    int32_t prefix; /* the prefix that the prefix cache knows it by (prefix_cache.h); PREFIX_NONE: it cannot be found */
};

struct block_pool {
    struct block *blocks; /* [end] by number; the pool's own begin at `first`. NULL: it has none yet */
    int32_t first, end;
    int32_t head, tail; /* of the free list */
    int32_t oldest;     /* the first cached block of the list, which is the next to be evicted; BLOCK_NONE: none is */
    int32_t untaken;    /* this block and those after it were never taken */
    int32_t num_free;   /* in the free list, cached ones included, or never taken */
    int32_t num_cached; /* of those, cached */
};

/* num_blocks blocks, numbered first .. first + num_blocks - 1, all free; first is at least 1. How many slots a block
 * has depends on who holds it (block_size below). */
enum status block_pool_init(struct block_pool *pool, int32_t first, int32_t num_blocks, struct error *err);
/* num_blocks more, after the last. On failure nothing has changed. */
enum status block_pool_grow(struct block_pool *pool, int32_t num_blocks, struct error *err);
void block_pool_free(struct block_pool *pool); /* safe on a zeroed struct */

/* Takes the block at the head of the free list, or one never taken rather than a cached one; its count becomes 1.
 * BLOCK_NONE if there is none, or if the head of the free list is not a free block. A block that the prefix cache knew
 * is evicted: *evicted gets the prefix that must forget it, otherwise PREFIX_NONE. */
int32_t block_pool_take(struct block_pool *pool, int32_t *evicted);
/* Adds a holder: a fork, or a hit in the prefix cache, which takes a block of count 0 out of the free list: all its
 * block_size slots are written. A block that is neither in use nor cached cannot be shared: the error names the block.
 */
enum status block_pool_share(struct block_pool *pool, int32_t block, int32_t block_size, struct error *err);
/* Removes a holder. At 0 the block returns to the free list: to the tail if it is cached, otherwise to the head.
 * Releasing a block of count 0, the null block or a number outside the pool is an error that names the block. */
enum status block_pool_release(struct block_pool *pool, int32_t block, struct error *err);
/* The prefix cache can find this block, which is full and in use, by `prefix`; PREFIX_NONE: it no longer can, and a
 * cached block becomes a free one. */
void block_pool_set_prefix(struct block_pool *pool, int32_t block, int32_t prefix);
/* Records that `count` slots from `offset` on are written, of block_size. Slots are written in ascending order, each
 * once, and only while the block has one holder: anything else is an error that names the block, and changes nothing.
 */
enum status block_pool_fill(struct block_pool *pool, int32_t block, int32_t block_size, int32_t offset, int32_t count,
                            struct error *err);

/* Records that of the written slots only the first `filled` still count. Only of a block with one holder, that the
 * prefix cache does not know, and that has as many: anything else is an error that names the block, and changes
 * nothing. */
enum status block_pool_unfill(struct block_pool *pool, int32_t block, int32_t filled, struct error *err);

int32_t block_pool_num_total(const struct block_pool *pool);
int32_t block_pool_num_in_use(const struct block_pool *pool); /* total - num_free */

/* Walks everything and checks rule 1 of ARCHITECTURE.md (free + cached + in use = total, each in one state, the list
 * sound). For debug builds and tests. */
enum status block_pool_check(const struct block_pool *pool, struct error *err);

#endif
