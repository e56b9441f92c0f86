/* Block tables: which sequence holds which block. Allocation of prompts, with or without prefix caching; appending with
 * copy-on-write; forks; swapping; release.
 *
 * Two sequences forked after a prompt of 10 tokens, block_size 4. They share the two full blocks; the third was copied
 * when the second sequence wrote its first token (copy-on-write):
 *
 *     sequence A, 12 tokens: block_table [ 5, 2, 7 ]        block:      2   5   7   9
 *     sequence B, 11 tokens: block_table [ 5, 2, 9 ]        ref_count:  2   2   1   1
 *                                                           filled:     4   4   4   3
 *
 * Token t of a sequence is in block block_table[t / block_size], at offset t % block_size; the two together are its
 * slot, block * block_size + offset. */
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
    int32_t watermark; /* blocks that admission leaves free: batch_watermark */
    int64_t evictions; /* cached blocks that were taken for other contents */
    int32_t *scratch;  /* [pool.end, then host.end] for block_manager_check */
};

enum status block_manager_init(struct block_manager *m, int32_t num_blocks, int32_t block_size, bool caching,
                               struct error *err);
void block_manager_free(struct block_manager *m);

/* Whether blocks for all unfinished sequences of a waiting request can be allocated with the watermark left free.
 * *required gets the number of blocks: those of the first unfinished sequence's tokens and, if the request was forked
 * before it was preempted, those of its siblings beyond the prompt's full blocks, which they share. A preempted request
 * may have grown so large that no pool could leave the watermark free; then only *required counts, so that it can
 * still finish. */
enum allocate_result block_manager_can_allocate(const struct block_manager *m, const struct request *request,
                                                int32_t *required);
/* Allocates blocks for all known tokens of the sequence, those of a cached prefix from the cache: sets block_table,
 * num_blocks, num_computed (the cached tokens: whole blocks, and never the last token), num_hashed and prefix_id. Call
 * it after can_allocate answered OK. Too few free blocks are an error, and then nothing has changed. */
enum status block_manager_allocate(struct block_manager *m, struct sequence *seq, struct error *err);

/* Blocks that the sequence must take to hold num_tokens tokens: new ones, and one more if the block that it writes to
 * next is shared (copy-on-write). */
int32_t block_manager_append_cost(const struct block_manager *m, const struct sequence *seq, int32_t num_tokens);
/* Makes room for num_tokens tokens in all, and makes the block of the first uncomputed token writable: takes blocks,
 * and if that block is shared, replaces it by a fresh one and reports the copy in *copy (source BLOCK_NONE: none).
 * Too few free blocks are an error, and then nothing has changed. */
enum status block_manager_append(struct block_manager *m, struct sequence *seq, int32_t num_tokens,
                                 struct block_pair *copy, struct error *err);

/* Copies the parent's block table to the child and adds a holder to each block; num_computed, num_cached and num_hashed
 * become the parent's as well. */
enum status block_manager_fork(struct block_manager *m, const struct sequence *parent, struct sequence *child,
                               struct error *err);

/* For a forked request that was preempted: allocates blocks for the sequence's tokens except the first num_shared
 * blocks. Their table entries stay null until the leader has computed these blocks and block_manager_share() adds the
 * sequence as a holder. */
enum status block_manager_reserve(struct block_manager *m, struct sequence *seq, int32_t num_shared, struct error *err);
enum status block_manager_share(struct block_manager *m, const struct sequence *from, struct sequence *seq,
                                int32_t num_shared, struct error *err);

/* Adds num_blocks host blocks. Their numbers follow the device's. */
enum status block_manager_grow_host(struct block_manager *m, int32_t num_blocks, struct error *err);
/* Host blocks needed to swap the request out: the blocks that it holds, a shared one counted once. */
int32_t block_manager_swap_out_cost(const struct block_manager *m, const struct request *request);
/* Whether a swapped request can return: its blocks, and one for each unfinished sequence to grow into, must leave the
 * watermark free. */
enum allocate_result block_manager_can_swap_in(const struct block_manager *m, const struct request *request);
/* Moves the request to blocks of the other pool. A block that several of its sequences hold is moved once and stays
 * shared. The copies to make are added to pairs[*num_pairs]. The old blocks are released at once, so the copies must
 * run before anything else is written to them. A device block that is swapped out stays in the prefix cache under its
 * old number; a block that returns enters the cache like any full block, by block_manager_hash. */
enum status block_manager_swap_out(struct block_manager *m, struct request *request, struct block_pair *pairs,
                                   int32_t *num_pairs, struct error *err);
enum status block_manager_swap_in(struct block_manager *m, struct request *request, struct block_pair *pairs,
                                  int32_t *num_pairs, struct error *err);

/* Enters the sequence's blocks that are full of known, computed tokens into the prefix cache. */
void block_manager_hash(struct block_manager *m, struct sequence *seq);
/* Releases every block of the sequence, of the device or of the host, and empties its table. The last block is released
 * first, so that the end of a cached prefix is evicted before its beginning. */
enum status block_manager_release(struct block_manager *m, struct sequence *seq, struct error *err);

/* Empties the prefix cache. */
void block_manager_reset_cache(struct block_manager *m);

/* Rules 1, 2 and 5 of ARCHITECTURE.md over all sequences given (those that hold blocks). For debug builds and tests. */
enum status block_manager_check(const struct block_manager *m, struct sequence *const *seqs, int32_t num_seqs,
                                struct error *err);

#endif
