/* The prefix cache: which block holds a given prefix. The identity of a full block is (the prefix id of the block
 * before it, its tokens, an extra key for whatever else changes K and V: an adapter, a salt). Each identity gets a
 * prefix id of 64 bits that is never used again. A prefix begins with one of two empty ones: PREFIX_EMPTY, or
 * PREFIX_EMPTY_LONG in a sequence past longrope's switch, whose K and V are others. The hash only finds candidates; the
 * identity is compared before a block is shared. Nothing is allocated after init. */
#ifndef QUIRE_SCHEDULER_PREFIX_CACHE_H
#define QUIRE_SCHEDULER_PREFIX_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef uint64_t prefix_hash_function(uint64_t parent, const int32_t *tokens, int32_t count, uint64_t extra_key);

#define PREFIX_EMPTY 0
#define PREFIX_EMPTY_LONG 1

struct prefix_entry;

struct prefix_cache {
    struct prefix_entry *entries; /* [num_blocks + 1], by block */
    int32_t *tokens;              /* [num_blocks + 1, block_size], by block */
    int32_t *buckets;             /* [num_buckets] first block of each chain; 0, the null block, for none */
    int32_t num_blocks, num_buckets, block_size;
    uint64_t next_prefix_id;
    prefix_hash_function *hash; /* XXH3 unless a test puts a colliding one here, before the first insertion */
};

enum status prefix_cache_init(struct prefix_cache *cache, int32_t num_blocks, int32_t block_size, struct error *err);
void prefix_cache_free(struct prefix_cache *cache);

/* The block that holds this identity, and its prefix id; BLOCK_NONE if there is none. */
int32_t prefix_cache_find(const struct prefix_cache *cache, uint64_t parent, const int32_t *tokens, uint64_t extra_key,
                          uint64_t *prefix_id);
/* Gives `block` (not in the cache) this identity and returns its prefix id. If another block already has the identity,
 * nothing is inserted, *inserted is false and that block's prefix id is returned. */
uint64_t prefix_cache_insert(struct prefix_cache *cache, int32_t block, uint64_t parent, const int32_t *tokens,
                             uint64_t extra_key, bool *inserted);
/* Forgets `block` (eviction), which must be in the cache. Its prefix id is never used again. */
void prefix_cache_forget(struct prefix_cache *cache, int32_t block);
/* The prefix id of `block`; 0: it is not in the cache. */
uint64_t prefix_cache_id(const struct prefix_cache *cache, int32_t block);

#endif
