/* Block tables: who holds which block. Allocation of prompts with prefix caching, appending with copy-on-write, forks,
 * swapping and release. Two allocators behind one interface: naive (a free list) and prefix-caching. */
#ifndef QUIRE_SCHEDULER_BLOCK_MANAGER_H
#define QUIRE_SCHEDULER_BLOCK_MANAGER_H

#include "base/batch.h"
#include "scheduler/block_pool.h"
#include "scheduler/prefix_cache.h"
#include "scheduler/sequence.h"

enum allocate_result { ALLOCATE_OK, ALLOCATE_LATER, ALLOCATE_NEVER };

struct block_manager {
    struct block_pool pool;    /* of the device */
    struct block_pool host;    /* of swap space; empty until block_manager_grow_host. Never cached */
    struct prefix_cache cache; /* unused when caching is off */
    bool caching;
    int32_t block_size;
    int32_t watermark; /* floor(0.01 * total) blocks kept free on admission */
    int64_t evictions; /* cached blocks taken for something else */
    int32_t *scratch;  /* [pool.end, then host.end] for block_manager_check */
};

enum status block_manager_init(struct block_manager *m, int32_t num_blocks, int32_t block_size, bool caching,
                               struct error *err);
void block_manager_free(struct block_manager *m);

/* Whether a waiting request, all its unfinished sequences, can have blocks and leave the watermark free. *required gets
 * the blocks that it needs: those of the first unfinished sequence's tokens and, where the request was forked before it
 * was preempted, those of the others beyond the full blocks of the prompt, which they share. A request that ran before
 * and outgrew the watermark's share is not refused for it: only the blocks that it needs count then. */
enum allocate_result block_manager_can_allocate(const struct block_manager *m, const struct request *request,
                                                int32_t *required);
/* Gives the sequence blocks for all its known tokens, the cached prefix first: sets block_table, num_blocks,
 * num_computed (the cached tokens, at most num_tokens - 1 rounded down to a block), num_hashed and prefix_id. Call only
 * after can_allocate said OK; too few blocks are an error, and nothing has changed then. */
enum status block_manager_allocate(struct block_manager *m, struct sequence *seq, struct error *err);

/* Blocks that the sequence must take to hold num_tokens tokens: new ones, and one more if the block that it writes to
 * next is shared (copy-on-write). */
int32_t block_manager_append_cost(const struct block_manager *m, const struct sequence *seq, int32_t num_tokens);
/* Makes room for num_tokens tokens in all, and makes the block of the first uncomputed token writable: takes blocks,
 * and if that block is shared, replaces it by a fresh one and reports the copy in *copy (source BLOCK_NONE: none).
 * Too few free blocks are an error, and then nothing has changed. */
enum status block_manager_append(struct block_manager *m, struct sequence *seq, int32_t num_tokens,
                                 struct block_pair *copy, struct error *err);

/* The child's table becomes a copy of the parent's; every count goes up by one. What was computed, cached and hashed is
 * the same too. */
enum status block_manager_fork(struct block_manager *m, const struct sequence *parent, struct sequence *child,
                               struct error *err);

/* For a forked request that was preempted: blocks for the sequence's tokens but for the first num_shared blocks, which
 * are null until block_manager_share() puts there the full blocks that another sequence has computed meanwhile. */
enum status block_manager_reserve(struct block_manager *m, struct sequence *seq, int32_t num_shared, struct error *err);
enum status block_manager_share(struct block_manager *m, const struct sequence *from, struct sequence *seq,
                                int32_t num_shared, struct error *err);

/* num_blocks more host blocks; the first is numbered from where the device's end. */
enum status block_manager_grow_host(struct block_manager *m, int32_t num_blocks, struct error *err);
/* Host blocks that swapping the request out would take: as many as it holds, a shared one counted once. */
int32_t block_manager_swap_out_cost(const struct block_manager *m, const struct request *request);
/* The same for a request that was swapped out: its blocks and a spare one for each unfinished sequence. */
enum allocate_result block_manager_can_swap_in(const struct block_manager *m, const struct request *request);
/* Moves every block of the request to the other side; one that several of its sequences hold moves once and stays
 * shared. What has to be copied is added to pairs[*num_pairs]. The blocks left behind are free at once, so the copy
 * must run before whatever is written to them later. On the device a block keeps its identity where it lay; where it
 * comes back it gets one again, like any full block, from block_manager_hash. */
enum status block_manager_swap_out(struct block_manager *m, struct request *request, struct block_pair *pairs,
                                   int32_t *num_pairs, struct error *err);
enum status block_manager_swap_in(struct block_manager *m, struct request *request, struct block_pair *pairs,
                                  int32_t *num_pairs, struct error *err);

/* Gives identities to the sequence's blocks that are full of known, computed tokens. */
void block_manager_hash(struct block_manager *m, struct sequence *seq);
/* Releases every block, of the device or of the host, the last first, so that tails are evicted before heads; the table
 * is empty then. */
enum status block_manager_release(struct block_manager *m, struct sequence *seq, struct error *err);

/* Makes the prefix cache forget everything. */
void block_manager_reset_cache(struct block_manager *m);

/* Rules 1, 2 and 5 of ARCHITECTURE.md over all sequences given (those that hold blocks). For debug builds and tests. */
enum status block_manager_check(const struct block_manager *m, struct sequence *const *seqs, int32_t num_seqs,
                                struct error *err);

#endif
