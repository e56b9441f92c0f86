/* Block tables: which sequence holds which block. Admission, appending with copy-on-write, forks, windows, swapping,
 * release.
 *
 * Two sequences forked after a prompt of 10 tokens, block_size 4. They share the two full blocks; the third was copied
 * when the second sequence wrote its first token (copy-on-write):
 *
 *     sequence A, 12 tokens: table [ 5, 2, 7 ]        block:      2   5   7   9
 *     sequence B, 11 tokens: table [ 5, 2, 9 ]        ref_count:  2   2   1   1
 *                                                     filled:     4   4   4   3
 *
 * Token t of a sequence is in block table[t / block_size], at offset t % block_size; the two together are its slot,
 * block * block_size + offset.
 *
 * A sequence has a table for each KV cache group (struct batch_limits), and each group has its own block_size
 * (batch_block_size). In a group with a window, blocks that no later query reads are given back as the sequence grows,
 * and their entries become 0, the null block. Window 6, block_size 4, 13 tokens computed: the query of token 13 reads
 * tokens 8 to 13.
 *
 *     full attention: table [ 5, 2, 7, 9 ]            window 6: table [ 0, 0, 3, 8 ]
 *
 * Unless a comment says otherwise, functions that take blocks check first that there are enough: too few are
 * STATUS_INTERNAL, and nothing has changed. */
#ifndef QUIRE_SCHEDULER_BLOCK_MANAGER_H
#define QUIRE_SCHEDULER_BLOCK_MANAGER_H

#include "base/batch.h"
#include "scheduler/block_pool.h"
#include "scheduler/prefix_cache.h"
#include "scheduler/sequence.h"
#include "scheduler/state_pool.h"

enum allocate_result { ALLOCATE_OK, ALLOCATE_LATER, ALLOCATE_NEVER };

struct block_manager {
    struct batch_limits limits;
    struct block_pool pool;    /* of the device */
    struct block_pool host;    /* of swap space; empty until block_manager_grow_host. Never cached */
    struct prefix_cache cache; /* unused when caching is off */
    struct state_pool states;
    bool caching;
    int32_t watermark; /* blocks that admission leaves free: batch_watermark */
    int64_t evictions; /* cached blocks that were taken for other contents */
    int64_t gains;     /* blocks that became free or findable so far: what a request that waits for blocks waits for */
};

enum status block_manager_init(struct block_manager *m, int32_t num_blocks, const struct batch_limits *limits,
                               bool caching, struct error *err);
void block_manager_free(struct block_manager *m);

/* Whether a waiting request can start with the watermark left free. *required gets the blocks that its unfinished
 * sequences need for their tokens: those of the first, and of the others beyond the prompt, whose blocks they share; of
 * a group with a window no more than a sequence holds at a time (batch_group_blocks). A preempted request may have
 * grown so large that no pool could leave the watermark free; then only *required counts, so that it can still finish.
 *
 * Blocks found in the prefix cache lower the need. The answer LATER is kept in the request until m->gains has grown by
 * the number of blocks that are missing, so that a request at the head of the queue is not looked up at every step. It
 * is never kept for good, but may be kept a little too long where one block makes several others findable again.
 *
 * With states the answer is LATER, too, where a snapshot deeper than those that are there is pending on the prompt's
 * way through the cache: of many prompts with a common beginning one or two compute it. */
enum allocate_result block_manager_can_allocate(struct block_manager *m, struct request *request, int32_t *required);
/* Starts a sequence that holds no blocks: finds the longest cached prefix, shares its blocks, and takes blocks for its
 * tokens; for the prompt alone if its request has other sequences, which start from those blocks; in a group with a
 * window, for as many as one step can compute. Sets num_computed (the cached tokens: whole blocks of each group, and
 * never the last token), num_hashed and prefix. A hit needs the blocks of full attention from the first to the last,
 * and of a window those that the next token still reads; with states, a snapshot, from which the sequence goes on.
 * Where more of its blocks are there than it can share for want of a snapshot, it is to write one (seq->parting). Call
 * it after can_allocate answered OK. */
enum status block_manager_allocate(struct block_manager *m, struct sequence *seq, struct error *err);

/* What a sequence computes next: the tokens num_computed .. num_tokens - 1. */
struct growth {
    struct sequence *seq;
    int32_t num_tokens;
};
/* Blocks that must be free for these growths, appended in this order, the sequences all different: exact, whichever of
 * them share a block that several write to, and whatever leaves their windows and becomes free. */
int32_t block_manager_append_cost(struct block_manager *m, const struct growth *growths, int32_t count);
/* Makes room for num_tokens tokens in all, and makes the slots of tokens num_computed .. num_tokens - 1 writable. In
 * each group: gives back the blocks that have left the window, replaces each block in that range that others hold
 * (copy-on-write), and takes new ones; up to seq->num_writable there is nothing to do. Only the block of the first of
 * these tokens can hold tokens of this sequence already; it alone is copied. The copies, at most one a group, are added
 * to copies[*num_copies]. */
enum status block_manager_append(struct block_manager *m, struct sequence *seq, int32_t num_tokens,
                                 struct block_pair *copies, int32_t *num_copies, struct error *err);

/* Of the computed tokens only the first num_computed are kept: the slots of the others count as not written, and the
 * blocks that hold none of the kept tokens are released. None of these slots is in a block that the prefix cache knows,
 * and none of these blocks has another holder. */
enum status block_manager_rollback(struct block_manager *m, struct sequence *seq, int32_t num_computed,
                                   struct error *err);

/* The child, which holds no blocks, gets the parent's tables and state, and one more holder is counted for each;
 * num_computed, num_cached, num_hashed and prefix become the parent's as well. */
enum status block_manager_fork(struct block_manager *m, struct sequence *parent, struct sequence *child,
                               struct error *err);

/* Adds num_blocks host blocks. Their numbers follow the device's. */
enum status block_manager_grow_host(struct block_manager *m, int32_t num_blocks, struct error *err);
/* Host blocks needed to swap the request out: the blocks that it holds, a shared one counted once. */
int32_t block_manager_swap_out_cost(struct block_manager *m, const struct request *request);
/* Whether a swapped request can return: its blocks, and one a group for each unfinished sequence to grow into, must
 * leave the watermark free. A sequence that was preempted in the middle of its known tokens needs those that it lacks
 * instead of the one. */
enum allocate_result block_manager_can_swap_in(struct block_manager *m, const struct request *request);
/* Moves the request to blocks of the other pool. A block that several of its sequences hold is moved once and stays
 * shared. The copies to make are added to pairs[*num_pairs]. The old blocks are released at once, so the copies must
 * run before anything else is written to them. A device block that is swapped out stays in the prefix cache under its
 * old number. On the way in, blocks that the prefix cache still finds are shared instead of copied. */
enum status block_manager_swap_out(struct block_manager *m, struct request *request, struct block_pair *pairs,
                                   int32_t *num_pairs, struct error *err);
enum status block_manager_swap_in(struct block_manager *m, struct request *request, struct block_pair *pairs,
                                  int32_t *num_pairs, struct error *err);

/* Enters the sequence's blocks that are full of known, computed tokens into the prefix cache. If all its numbers are in
 * use, by many salts or by prefixes that have lost their blocks, the oldest cached block is forgotten, provided that
 * its number is free then. */
void block_manager_enter_blocks(struct block_manager *m, struct sequence *seq);
/* The same, of a sequence that most often has no such block. */
static inline void block_manager_hash(struct block_manager *m, struct sequence *seq)
{
    const bool is_full = (seq->num_hashed + 1) * m->limits.block_size <= seq->num_computed;
    if (is_full && m->caching) block_manager_enter_blocks(m, seq);
}
/* The tokens from this one on are not computed after all: the prefix cache forgets the sequence's blocks that hold one.
 * The sequence is released next. */
void block_manager_forget(struct block_manager *m, struct sequence *seq, int32_t token);
/* Releases every block of the sequence, of the device or of the host, and its states, and empties its tables: nothing
 * of it is computed any more. The last block is released first, so that the end of a cached prefix is evicted before
 * its beginning. */
enum status block_manager_release(struct block_manager *m, struct sequence *seq, struct error *err);

/* Empties the prefix cache. No sequence may hold blocks. */
void block_manager_reset_cache(struct block_manager *m);

/* Rules 1, 2 and 5 of ARCHITECTURE.md over all requests that hold blocks: those that follow `running` and `swapped` by
 * `next`; NULL: there are none. For debug builds and tests. It allocates nothing: it counts in the blocks' notes, which
 * are 0 before and after. */
enum status block_manager_check(const struct block_manager *m, const struct request *running,
                                const struct request *swapped, struct error *err);

#endif
