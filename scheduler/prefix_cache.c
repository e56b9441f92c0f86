#include "scheduler/prefix_cache.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "scheduler/block_pool.h"

enum { NO_BLOCK = 0 }; /* the end of a chain: the null block has no identity, and tables of zeros need no filling */

struct prefix_entry {
    uint64_t parent, prefix_id, extra_key; /* prefix_id 0: the block is not in the cache */
    int32_t bucket, previous, next;        /* its chain */
};

static uint64_t hash_xxh3(uint64_t parent, const int32_t *tokens, int32_t count, uint64_t extra_key)
{
    return XXH3_64bits_withSeed(tokens, (size_t)count * sizeof *tokens, parent * 0x9E3779B97F4A7C15u + extra_key);
}

enum status prefix_cache_init(struct prefix_cache *cache, int32_t num_blocks, int32_t block_size, struct error *err)
{
    *cache = (struct prefix_cache){
        .num_blocks = num_blocks, .block_size = block_size, .next_prefix_id = PREFIX_EMPTY_LONG + 1};
    cache->hash = hash_xxh3;
    cache->num_buckets = 1;
    while (cache->num_buckets < num_blocks && cache->num_buckets < 1 << 29) cache->num_buckets *= 2;
    size_t entries = (size_t)num_blocks + 1;
    cache->entries = calloc(entries, sizeof *cache->entries);
    cache->tokens = calloc(entries * (size_t)block_size, sizeof *cache->tokens);
    cache->buckets = calloc((size_t)cache->num_buckets, sizeof *cache->buckets);
    if (!cache->entries || !cache->tokens || !cache->buckets) {
        prefix_cache_free(cache);
        return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the prefix cache of %d blocks", num_blocks);
    }
    return STATUS_OK;
}

void prefix_cache_free(struct prefix_cache *cache)
{
    free(cache->entries);
    free(cache->tokens);
    free(cache->buckets);
    *cache = (struct prefix_cache){0};
}

static int32_t *tokens_of(const struct prefix_cache *cache, int32_t block)
{
    return cache->tokens + (size_t)block * (size_t)cache->block_size;
}

static int32_t bucket_of(const struct prefix_cache *cache, uint64_t parent, const int32_t *tokens, uint64_t extra_key)
{
    uint64_t hash = cache->hash(parent, tokens, cache->block_size, extra_key);
    return (int32_t)(hash & (uint64_t)(cache->num_buckets - 1));
}

/* The hash led to this chain; only an equal identity counts. */
static int32_t find_in_bucket(const struct prefix_cache *cache, int32_t bucket, uint64_t parent, const int32_t *tokens,
                              uint64_t extra_key)
{
    size_t bytes = (size_t)cache->block_size * sizeof *tokens;
    for (int32_t block = cache->buckets[bucket]; block != NO_BLOCK; block = cache->entries[block].next) {
        const struct prefix_entry *e = &cache->entries[block];
        if (e->parent == parent && e->extra_key == extra_key && !memcmp(tokens_of(cache, block), tokens, bytes))
            return block;
    }
    return BLOCK_NONE;
}

int32_t prefix_cache_find(const struct prefix_cache *cache, uint64_t parent, const int32_t *tokens, uint64_t extra_key,
                          uint64_t *prefix_id)
{
    int32_t block = find_in_bucket(cache, bucket_of(cache, parent, tokens, extra_key), parent, tokens, extra_key);
    if (block != BLOCK_NONE) *prefix_id = cache->entries[block].prefix_id;
    return block;
}

uint64_t prefix_cache_insert(struct prefix_cache *cache, int32_t block, uint64_t parent, const int32_t *tokens,
                             uint64_t extra_key, bool *inserted)
{
    int32_t bucket = bucket_of(cache, parent, tokens, extra_key);
    int32_t other = find_in_bucket(cache, bucket, parent, tokens, extra_key);
    *inserted = other == BLOCK_NONE;
    if (other != BLOCK_NONE) return cache->entries[other].prefix_id;

    int32_t first = cache->buckets[bucket];
    cache->entries[block] = (struct prefix_entry){
        .parent = parent,
        .prefix_id = cache->next_prefix_id++,
        .extra_key = extra_key,
        .bucket = bucket,
        .previous = NO_BLOCK,
        .next = first,
    };
    if (first != NO_BLOCK) cache->entries[first].previous = block;
    cache->buckets[bucket] = block;
    memcpy(tokens_of(cache, block), tokens, (size_t)cache->block_size * sizeof *tokens);
    return cache->entries[block].prefix_id;
}

void prefix_cache_forget(struct prefix_cache *cache, int32_t block)
{
    struct prefix_entry *e = &cache->entries[block];
    if (e->previous == NO_BLOCK)
        cache->buckets[e->bucket] = e->next;
    else
        cache->entries[e->previous].next = e->next;
    if (e->next != NO_BLOCK) cache->entries[e->next].previous = e->previous;
    *e = (struct prefix_entry){0};
}

uint64_t prefix_cache_id(const struct prefix_cache *cache, int32_t block)
{
    return cache->entries[block].prefix_id;
}
