/* State slots: which sequence, and which prefix of the prefix cache, holds the states of the recurrent layers after
 * which tokens.
 *
 * A state slot has one state of each recurrent layer (base/batch.h). A step reads a sequence's state from one slot and
 * writes it, after the tokens of the step, to the same or to another one. A slot with a single holder is written in
 * place. One with several is never written again: whoever goes on from it writes to a slot of its own. So a copy is
 * never made. Two sequences forked from one, and then after a step of each:
 *
 *     A, 12 tokens: 3         slot:     3         A, 13 tokens: 5         slot:     3   5   6
 *     B, 12 tokens: 3         holders:  2         B, 13 tokens: 6         holders:  0   1   1
 *
 * A *boundary* is a number of tokens that ends a block of every KV cache group: a multiple of the largest block. A
 * *snapshot* is a slot that a prefix of the prefix cache holds, for the state after exactly this prefix, which ends at
 * a boundary. A prompt with states finds of a cached prefix no more than the deepest snapshot that has its blocks. Two
 * make snapshots.
 *
 * A prompt: a chunk ends where scheduler_choose.c cuts it. The slot is found from the next step on, because a step
 * reads and writes its slots side by side; until then the prefix is SNAPSHOT_PENDING.
 *
 * A decode: where its state is after a boundary, a sequence writes to another slot and keeps this one until the next
 * boundary. When it ends, or is preempted, the last boundary becomes a snapshot: its newest state is seldom at one, and
 * may have a token too many, because a second step is in flight.
 *
 * A slot is taken from those that are free, then from the oldest snapshot that no sequence reads. Of a step, with those
 * that it reads and gives up, each sequence holds two slots at most, and a run one more for each draft: so one never
 * lacks if there are state_pool_min_slots. One more is for a snapshot that many prompts share.
 *
 * Slots are the blocks of a block_pool of their own: a snapshot that no sequence holds is a cached block. */
#ifndef QUIRE_SCHEDULER_STATE_POOL_H
#define QUIRE_SCHEDULER_STATE_POOL_H

#include "base/batch.h"
#include "scheduler/block_pool.h"
#include "scheduler/prefix_cache.h"
#include "scheduler/sequence.h"

/* A slot that the step being scheduled writes, for the snapshot of a prefix. */
struct arrival {
    int32_t slot, prefix; /* held, pinned */
};

struct state_pool {
    struct block_pool slots;    /* 1 .. limits.num_state_slots; none: no layer has a state */
    struct block_pool host;     /* host slots, whose numbers follow; empty until state_swap_grow. No snapshots */
    struct prefix_cache *cache; /* NULL: there are no snapshots */
    int32_t boundary;           /* boundaries are the multiples of it */
    int32_t block_size;         /* tokens of a prefix more than of its parent */
    int32_t *leaving;           /* [num_leaving] held until the next step, because this one reads them */
    int32_t num_leaving;
    struct arrival *arrivals; /* [num_arrivals] */
    int32_t num_arrivals;
    int32_t num_snapshots;
    int64_t made, evicted, hits; /* snapshots so far; evicted: for want of a slot, or with a block */
    struct error violation;      /* the first inconsistency that was found; "": none */
};

/* Slots with which no running sequence ever lacks one. More are for snapshots. */
int32_t state_pool_min_slots(const struct batch_limits *limits);

/* cache: NULL without a prefix cache; otherwise its prefixes get snapshots. */
enum status state_pool_init(struct state_pool *pool, const struct batch_limits *limits, struct prefix_cache *cache,
                            struct error *err);
void state_pool_free(struct state_pool *pool); /* safe on a zeroed struct */

static inline bool state_pool_is_used(const struct state_pool *pool)
{
    return pool->slots.end > 0;
}

/* The next step is scheduled: what the last one read last is free, and what it wrote for prefixes can be found. */
void state_pool_settle(struct state_pool *pool);
/* The step that was scheduled last is cancelled: what it was to write for prefixes is not there. Its sequences end. */
void state_pool_cancel(struct state_pool *pool);

/* A sequence without a state starts after the prefix of this snapshot. */
void state_pool_start(struct state_pool *pool, struct sequence *seq, int32_t slot);
/* The sequence, which is to start, will write a snapshot of this prefix of num_tokens tokens. Until then, or until it
 * is released, the prefix is SNAPSHOT_PENDING. */
void state_pool_await(struct state_pool *pool, struct sequence *seq, int32_t prefix, int32_t num_tokens);
void state_pool_fork(struct state_pool *pool, const struct sequence *parent, struct sequence *child);
/* The step that is scheduled goes on from the state of a sequence, which had num_computed tokens: *source gets the slot
 * that it reads, seq->state the one that it writes. */
enum status state_pool_write(struct state_pool *pool, struct sequence *seq, int32_t num_computed, int32_t *source,
                             struct error *err);
/* A slot for a draft's state, with one holder; STATE_SLOT_NONE: there is none. */
int32_t state_pool_take(struct state_pool *pool);
void state_pool_drop(struct state_pool *pool, int32_t slot); /* one holder less. STATE_SLOT_NONE is ignored */
/* seq->state, which the step writes, becomes the snapshot of seq->prefix. */
void state_pool_add_snapshot(struct state_pool *pool, struct sequence *seq);
/* The sequence keeps the slot, which has the state after its first `boundary` tokens, in place of the one before. */
void state_pool_keep(struct state_pool *pool, struct sequence *seq, int32_t slot, int32_t boundary);
/* The sequence's newest state is not to be trusted, because its step is cancelled. The sequence is released next. */
void state_pool_forget(struct state_pool *pool, struct sequence *seq);
/* The sequence gives its states up. The last boundary whose tokens the prefix cache knows becomes a snapshot, if there
 * is none. */
void state_pool_release(struct state_pool *pool, struct sequence *seq);
/* The prefix loses a block, and its snapshot with it. */
void state_pool_drop_snapshot(struct state_pool *pool, int32_t prefix);

/* Checks the pool and its snapshots. Holders are counted by scheduler_check. */
enum status state_pool_check(const struct state_pool *pool, struct error *err);

#endif
