/* The physical blocks: one array, reference counts, and an intrusive doubly-linked free list. Allocation, release and a
 * cache hit are O(1); nothing is allocated but by block_pool_init and block_pool_grow. It knows numbers, never memory.
 *
 * Block 0 is the null block: never taken, counted or freed; it stands for padding entries of a table. Blocks of the
 * device and of the host are two pools whose numbers are disjoint, the device's first. Every other block is in exactly
 * one state: free (no count, no identity), cached (no count, but its contents and identity are kept; it waits in the
 * free list too), or in use (count > 0). Blocks that were never taken are free and stand between the free ones of the
 * list and the cached ones, without being in it: a table of millions costs nothing until its blocks are used.
 */
#ifndef QUIRE_SCHEDULER_BLOCK_POOL_H
#define QUIRE_SCHEDULER_BLOCK_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#define BLOCK_NONE (-1)

struct block {
    int32_t ref_count;
    int32_t previous, next; /* neighbours in the free list; BLOCK_NONE outside it */
    int32_t filled;         /* slots written, or to be written by a submitted step, since the block was taken */
    int32_t moved_to;       /* while blocks are swapped: the one that takes this one's contents; 0 otherwise */
    bool cached;            /* the prefix cache can find it */
};

struct block_pool {
    struct block *blocks; /* [end] by number; the pool's own begin at `first` */
    int32_t first, end;
    int32_t head, tail; /* of the free list */
    int32_t untaken;    /* this block and those after it were never taken */
    int32_t num_free;   /* in the free list, cached ones included, or never taken */
    int32_t num_cached; /* of those, cached */
};

/* num_blocks blocks, numbered first .. first + num_blocks - 1, all free; first is at least 1. */
enum status block_pool_init(struct block_pool *pool, int32_t first, int32_t num_blocks, struct error *err);
/* num_blocks more, after the last. On failure nothing has changed. */
enum status block_pool_grow(struct block_pool *pool, int32_t num_blocks, struct error *err);
void block_pool_free(struct block_pool *pool); /* safe on a zeroed struct */

/* Takes the block at the head of the free list, or one never taken rather than a cached one; its count becomes 1.
 * BLOCK_NONE if there is none, or if the head of the free list is not a free block. *evicted says that the block was
 * cached: the caller must make the prefix cache forget it. */
int32_t block_pool_take(struct block_pool *pool, bool *evicted);
/* One more holder: a fork, or a hit in the prefix cache, which takes a block of count 0 out of the free list. A block
 * that is neither held nor cached cannot be shared: an error that names the block. */
enum status block_pool_share(struct block_pool *pool, int32_t block, struct error *err);
/* One holder less. At 0 the block goes to the free list: cached to its tail, otherwise to its head. Releasing a block
 * of count 0, the null block or a number outside the pool is an error that names the block. */
enum status block_pool_release(struct block_pool *pool, int32_t block, struct error *err);
/* The prefix cache can (or no longer can) find this block. */
void block_pool_set_cached(struct block_pool *pool, int32_t block, bool cached);
/* Notes that `count` slots from `offset` on are written. A block is filled from its first slot on and each slot once:
 * anything else, or more than one holder, is an error that names the block. */
enum status block_pool_fill(struct block_pool *pool, int32_t block, int32_t offset, int32_t count, struct error *err);

int32_t block_pool_num_total(const struct block_pool *pool);
int32_t block_pool_num_in_use(const struct block_pool *pool); /* total - num_free */

/* Walks everything and checks rule 1 of ARCHITECTURE.md (free + cached + in use = total, each in one state, the list
 * sound). For debug builds and tests. */
enum status block_pool_check(const struct block_pool *pool, struct error *err);

#endif
