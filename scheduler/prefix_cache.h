/* The prefix cache: which blocks hold the K and V of a given prefix.
 *
 * A prefix is a sequence's first full blocks of tokens, and whatever else changes their K and V. Prefixes form a tree:
 * each but the roots is its parent and one more block of tokens, and that is its identity. The hash only finds
 * candidates; the parent and the tokens are compared before a block is shared. So the identity of a prefix is exact,
 * however long it is.
 *
 *     root --[The quick brown]-- 5 --[fox jumps over]-- 9        5 and 9 are prefixes of 1 and 2 blocks
 *                                 \--[dog sleeps on]--- 12
 *
 * A prefix has at most one block of each KV cache group: the one that ends with it, which holds its last block_size
 * tokens, and of a group with larger blocks also tokens before them. It need not have any. A sliding group's block may
 * be evicted while longer prefixes still have theirs, and is not missed where the window has passed it. A prefix exists
 * as long as it has a block or a longer prefix, or is pinned; then its number may be used again. Who keeps the number
 * of a prefix therefore pins it.
 *
 * Roots keep apart what must not be shared though the tokens are the same: each cache namespace has a root of its own,
 * and so has each cache salt in each of the namespaces. A salt is any text. It is compared once, when its request is
 * added: requests whose salts are equal share one struct cache_salt. It outlives its last request as long as there is a
 * prefix below one of its roots, but the salts that no request has take at most 64 MiB; of one that would exceed them,
 * the cached blocks are not found any more.
 *
 * Where layers have states, a prefix may have a *snapshot*, too: the state slot that holds the states after exactly
 * this prefix. Only a prefix with a block of every group has one.
 *
 * After init only salts take memory, when their requests are added, and init touches none. A prefix costs 12 bytes, 4
 * for each group, 4 for each token of a block, and at most 2 for the hash table. */
#ifndef QUIRE_SCHEDULER_PREFIX_CACHE_H
#define QUIRE_SCHEDULER_PREFIX_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define PREFIX_NONE 0
#define SNAPSHOT_PENDING (-1) /* in place of a state slot */

/* Two requests of different cache namespaces share no block, because the same tokens have other K and V in each. */
#define CACHE_NAMESPACES 2 /* numbered from 0 */

typedef uint64_t prefix_hash_function(int32_t parent, const int32_t *tokens, int32_t count);

struct prefix;

struct salt_place;

struct cache_salt {
    struct prefix_cache *cache; /* that it was added to; NULL: none */
    uint64_t hash;              /* of the text */
    int32_t num_requests;       /* that have it */
    int32_t place;              /* in cache->places */
    size_t length;
    char text[]; /* [length] */
};

struct prefix_cache {
    struct prefix *prefixes; /* [capacity], by number; 0 is PREFIX_NONE */
    int32_t *tokens;         /* [capacity, block_size] */
    int32_t *blocks;         /* [capacity, num_groups] 0, the null block: it has none of this group */
    int32_t *snapshots;      /* [capacity] see prefix_cache_snapshot; NULL: no layer has a state */
    int32_t *buckets;        /* [num_buckets] first prefix of each chain; PREFIX_NONE: the chain is empty */
    int32_t capacity, num_buckets, block_size, num_groups;
    int32_t num_unused;         /* the numbers from capacity - num_unused on were never used */
    int32_t first_free;         /* of a list of numbers that are free again */
    prefix_hash_function *hash; /* XXH3 unless a test puts a colliding one here, before the first insertion */
    struct salt_place *places;  /* [num_places] of salts */
    int32_t num_places;
    int32_t first_free_place; /* of a list; -1: it is empty */
    size_t idle_bytes;        /* of the texts of salts that no request has */
};

/* Room for as many prefixes as there are blocks of block_size tokens, and a few that have lost their blocks. */
enum status prefix_cache_init(struct prefix_cache *cache, int32_t num_blocks, int32_t block_size, int32_t num_groups,
                              struct error *err);
void prefix_cache_free(struct prefix_cache *cache); /* safe on a zeroed struct */
/* Once, before the first insertion: prefixes can have snapshots. 4 bytes a prefix. */
enum status prefix_cache_add_snapshots(struct prefix_cache *cache, struct error *err);

/* A salt of one request, in no cache yet. NULL: out of memory. */
struct cache_salt *cache_salt_create(const char *text);
/* A request has it no longer. Not while another thread uses the cache that it was added to. NULL is ignored. */
void cache_salt_release(struct cache_salt *salt);
/* Adds the salt of a request, or frees it and returns the equal one that another has or had. If memory runs out it is
 * in no cache, and nothing is shared by it. */
struct cache_salt *prefix_cache_add_salt(struct prefix_cache *cache, struct cache_salt *salt);

/* The empty prefix of requests in this namespace with this salt (NULL: none). PREFIX_NONE: the salt is in no cache. */
int32_t prefix_cache_root(int32_t cache_namespace, const struct cache_salt *salt);

/* The prefix that follows `parent` by tokens[block_size]; PREFIX_NONE: it does not exist, or parent is PREFIX_NONE. */
int32_t prefix_cache_find(const struct prefix_cache *cache, int32_t parent, const int32_t *tokens);
/* Finds that prefix, and makes it where it does not exist. PREFIX_NONE: the cache has no room, or parent is
 * PREFIX_NONE. The caller pins a new prefix, gives it a block or inserts what follows it, before it calls another
 * function. A parent that has nothing but this child to keep it is removed when the insertion fails. */
int32_t prefix_cache_insert(struct prefix_cache *cache, int32_t parent, const int32_t *tokens);

/* The block of this group; 0: it has none. */
int32_t prefix_cache_block(const struct prefix_cache *cache, int32_t prefix, int32_t group);
/* Gives the prefix its block of this group, of which it has none. */
void prefix_cache_attach(struct prefix_cache *cache, int32_t prefix, int32_t group, int32_t block);
/* Takes the block, of whichever group, from the prefix (eviction), which has it. */
void prefix_cache_detach(struct prefix_cache *cache, int32_t prefix, int32_t block);

/* The state slot of the prefix's snapshot. STATE_SLOT_NONE: it has none; SNAPSHOT_PENDING: a step will write one. What
 * state_pool.c sets here keeps no prefix. */
static inline int32_t prefix_cache_snapshot(const struct prefix_cache *cache, int32_t prefix)
{
    return cache->snapshots[prefix];
}
/* Whether the prefix ends with a block of each group, and has it. */
bool prefix_cache_has_all_blocks(const struct prefix_cache *cache, int32_t prefix);
/* The prefix without its last block of tokens. */
int32_t prefix_cache_parent(const struct prefix_cache *cache, int32_t prefix);

/* Whether the prefix exists for a single reference: without it, its number is free. */
bool prefix_cache_has_one_reference(const struct prefix_cache *cache, int32_t prefix);
/* Keeps the prefix, or no longer. PREFIX_NONE and roots without a salt are ignored. */
void prefix_cache_pin(struct prefix_cache *cache, int32_t prefix);
void prefix_cache_unpin(struct prefix_cache *cache, int32_t prefix);

/* Checks the counts, the chains and the free list. A prefix without references is an error: nothing would ever remove
 * it. For debug builds and tests; it allocates nothing. */
enum status prefix_cache_check(const struct prefix_cache *cache, struct error *err);

#endif
