#include "scheduler/prefix_cache.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/plural.h"

/* The roots: numbers that stand for no tokens, have no parent and are never removed. Prefixes of tokens lie directly
 * below the first two, and salts below the others.
 *
 * A salt's path spells an int32, its length in bytes, and then its bytes, padded with zeros to whole chunks of
 * block_size int32. The first chunk of a path says how many chunks it has, so no salt's path is the beginning of
 * another's, and what lies below the end of one is tokens: tokens are never taken for a part of a salt, nor a salt for
 * tokens. */
enum { ROOT = 1, ROOT_LONG, SALTS, SALTS_LONG, FIRST_PREFIX };

enum { SPARE = 64 }; /* room for salts and for prefixes that have lost their blocks, in a cache full of blocks */

struct prefix {
    int32_t parent;     /* PREFIX_NONE: a root, or the number is free */
    int32_t next;       /* of its chain or of the free list; PREFIX_NONE: it is the last */
    int32_t refs : 31;  /* its blocks, its children and its pins; a root's are not counted */
    bool had_child : 1; /* false: nothing has followed it yet, so that no chain need be searched for what does */
};
_Static_assert(sizeof(struct prefix) == 12, "prefix_cache.h says what a prefix costs");

static uint64_t hash_xxh3(int32_t parent, const int32_t *tokens, int32_t count)
{
    return XXH3_64bits_withSeed(tokens, (size_t)count * sizeof *tokens, (uint64_t)parent);
}

enum status prefix_cache_init(struct prefix_cache *cache, int32_t num_blocks, int32_t block_size, int32_t num_groups,
                              struct error *err)
{
    *cache = (struct prefix_cache){.capacity = num_blocks + FIRST_PREFIX + SPARE,
                                   .num_buckets = 1,
                                   .block_size = block_size,
                                   .num_groups = num_groups,
                                   .num_unused = num_blocks + SPARE,
                                   .first_free = PREFIX_NONE,
                                   .hash = hash_xxh3};
    while (cache->num_buckets <= cache->capacity / 4) cache->num_buckets *= 2;
    const size_t capacity = (size_t)cache->capacity; /* zeros: memory is not touched before it is used */
    cache->prefixes = calloc(capacity, sizeof *cache->prefixes);
    cache->tokens = calloc(capacity * (size_t)block_size, sizeof *cache->tokens);
    cache->blocks = calloc(capacity * (size_t)num_groups, sizeof *cache->blocks);
    cache->buckets = calloc((size_t)cache->num_buckets, sizeof *cache->buckets);
    if (cache->prefixes && cache->tokens && cache->blocks && cache->buckets) return STATUS_OK;
    prefix_cache_free(cache);
    return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the prefix cache of %d block%s", num_blocks,
                     plural(num_blocks));
}

void prefix_cache_free(struct prefix_cache *cache)
{
    free(cache->prefixes);
    free(cache->tokens);
    free(cache->blocks);
    free(cache->buckets);
    *cache = (struct prefix_cache){0};
}

static int32_t *tokens_of(const struct prefix_cache *cache, int32_t prefix)
{
    return cache->tokens + (size_t)prefix * (size_t)cache->block_size;
}

static int32_t *blocks_of(const struct prefix_cache *cache, int32_t prefix)
{
    return cache->blocks + (size_t)prefix * (size_t)cache->num_groups;
}

/* ---- the hash table ---- */

static int32_t *bucket_of(const struct prefix_cache *cache, int32_t parent, const int32_t *tokens)
{
    const uint64_t hash = cache->hash(parent, tokens, cache->block_size);
    return &cache->buckets[hash & (uint64_t)(cache->num_buckets - 1)];
}

/* The hash led to this chain; only an equal identity counts. Most prefixes that are inserted are the first to follow
 * their parent, and the chain is not in the processor's cache. */
static int32_t find_in_chain(const struct prefix_cache *cache, int32_t first, int32_t parent, const int32_t *tokens)
{
    const size_t bytes = (size_t)cache->block_size * sizeof *tokens;
    if (!cache->prefixes[parent].had_child) return PREFIX_NONE;
    for (int32_t i = first; i != PREFIX_NONE; i = cache->prefixes[i].next)
        if (cache->prefixes[i].parent == parent && !memcmp(tokens_of(cache, i), tokens, bytes)) return i;
    return PREFIX_NONE;
}

int32_t prefix_cache_find(const struct prefix_cache *cache, int32_t parent, const int32_t *tokens)
{
    if (parent == PREFIX_NONE) return PREFIX_NONE;
    return find_in_chain(cache, *bucket_of(cache, parent, tokens), parent, tokens);
}

/* ---- references ---- */

/* Nothing refers to the prefix any more: its number is free. */
static void remove_prefix(struct prefix_cache *cache, int32_t prefix)
{
    struct prefix *p = &cache->prefixes[prefix];
    int32_t *link = bucket_of(cache, p->parent, tokens_of(cache, prefix));
    while (*link != prefix) link = &cache->prefixes[*link].next;
    *link = p->next;
    *p = (struct prefix){.parent = PREFIX_NONE, .next = cache->first_free, .refs = 0};
    cache->first_free = prefix;
}

static void add_reference(struct prefix_cache *cache, int32_t prefix)
{
    if (prefix >= FIRST_PREFIX) cache->prefixes[prefix].refs++;
}

/* A prefix without references is removed. Then its parent has one less, which may have been its last. */
static void drop_reference(struct prefix_cache *cache, int32_t prefix)
{
    while (prefix >= FIRST_PREFIX && --cache->prefixes[prefix].refs == 0) {
        const int32_t parent = cache->prefixes[prefix].parent;
        remove_prefix(cache, prefix);
        prefix = parent;
    }
}

bool prefix_cache_has_one_reference(const struct prefix_cache *cache, int32_t prefix)
{
    return cache->prefixes[prefix].refs == 1;
}

void prefix_cache_pin(struct prefix_cache *cache, int32_t prefix)
{
    add_reference(cache, prefix);
}

void prefix_cache_unpin(struct prefix_cache *cache, int32_t prefix)
{
    drop_reference(cache, prefix);
}

int32_t prefix_cache_block(const struct prefix_cache *cache, int32_t prefix, int32_t group)
{
    return blocks_of(cache, prefix)[group];
}

void prefix_cache_attach(struct prefix_cache *cache, int32_t prefix, int32_t group, int32_t block)
{
    blocks_of(cache, prefix)[group] = block;
    add_reference(cache, prefix);
}

void prefix_cache_detach(struct prefix_cache *cache, int32_t prefix, int32_t block)
{
    int32_t *blocks = blocks_of(cache, prefix);
    for (int32_t g = 0; g < cache->num_groups; g++) {
        if (blocks[g] != block) continue;
        blocks[g] = 0;
        drop_reference(cache, prefix);
        return;
    }
}

/* ---- insertion ---- */

static int32_t take_number(struct prefix_cache *cache)
{
    const int32_t number = cache->first_free;
    if (number != PREFIX_NONE)
        cache->first_free = cache->prefixes[number].next;
    else if (cache->num_unused > 0)
        return cache->capacity - cache->num_unused--;
    return number;
}

int32_t prefix_cache_insert(struct prefix_cache *cache, int32_t parent, const int32_t *tokens)
{
    if (parent == PREFIX_NONE) return PREFIX_NONE;
    int32_t *bucket = bucket_of(cache, parent, tokens);
    int32_t prefix = find_in_chain(cache, *bucket, parent, tokens);
    if (prefix != PREFIX_NONE) return prefix;
    prefix = take_number(cache);
    add_reference(cache, parent);
    if (prefix == PREFIX_NONE) {
        drop_reference(cache, parent); /* the child may have been all that it was made for */
        return PREFIX_NONE;
    }
    cache->prefixes[prefix] = (struct prefix){.parent = parent, .next = *bucket, .refs = 0};
    cache->prefixes[parent].had_child = true;
    *bucket = prefix;
    memcpy(tokens_of(cache, prefix), tokens, (size_t)cache->block_size * sizeof *tokens);
    return prefix;
}

/* ---- roots ---- */

/* Chunk `index` of a salt's path, in the row of tokens that belongs to no prefix. */
static const int32_t *salt_chunk(const struct prefix_cache *cache, const char *salt, size_t length, size_t index)
{
    int32_t *chunk = tokens_of(cache, PREFIX_NONE);
    const size_t size = (size_t)cache->block_size * sizeof *chunk, head = index == 0 ? sizeof *chunk : 0;
    const size_t start = index == 0 ? 0 : index * size - sizeof *chunk, left = length - start, room = size - head;
    memset(chunk, 0, size);
    if (index == 0) chunk[0] = (int32_t)length;
    memcpy((char *)chunk + head, salt + start, left < room ? left : room);
    return chunk;
}

/* make NULL: the root is only looked up. */
static int32_t find_root(const struct prefix_cache *cache, struct prefix_cache *make, bool long_rope, const char *salt)
{
    if (!salt) return long_rope ? ROOT_LONG : ROOT;
    const size_t length = strlen(salt), size = (size_t)cache->block_size * sizeof(int32_t);
    if (length > INT32_MAX) return PREFIX_NONE; /* its path cannot begin with its length */
    int32_t prefix = long_rope ? SALTS_LONG : SALTS;
    for (size_t i = 0; i * size < sizeof(int32_t) + length && prefix != PREFIX_NONE; i++) {
        const int32_t *chunk = salt_chunk(cache, salt, length, i);
        prefix = make ? prefix_cache_insert(make, prefix, chunk) : prefix_cache_find(cache, prefix, chunk);
    }
    return prefix;
}

int32_t prefix_cache_root(const struct prefix_cache *cache, bool long_rope, const char *salt)
{
    return find_root(cache, NULL, long_rope, salt);
}

int32_t prefix_cache_make_root(struct prefix_cache *cache, bool long_rope, const char *salt)
{
    return find_root(cache, cache, long_rope, salt);
}

/* ---- checks ---- */

static bool in_use(const struct prefix_cache *cache, int32_t prefix)
{
    return cache->prefixes[prefix].parent != PREFIX_NONE;
}

static int32_t num_blocks_of(const struct prefix_cache *cache, int32_t prefix)
{
    int32_t count = 0;
    for (int32_t g = 0; g < cache->num_groups; g++) count += blocks_of(cache, prefix)[g] != 0;
    return count;
}

/* Counts the prefixes in use into *used. Each has a parent and a reference; the others have nothing. */
static enum status check_numbers(const struct prefix_cache *cache, int32_t *used, struct error *err)
{
    const int32_t end = cache->capacity - cache->num_unused;
    for (int32_t i = FIRST_PREFIX; i < end; i++) {
        const int32_t parent = cache->prefixes[i].parent, refs = cache->prefixes[i].refs;
        if (parent != PREFIX_NONE &&
            (parent < 0 || parent >= end || (parent >= FIRST_PREFIX && !in_use(cache, parent))))
            return error_set(err, STATUS_INTERNAL, "prefix %d follows %d, which is no prefix", i, parent);
        if (in_use(cache, i) ? refs <= 0 : refs != 0 || num_blocks_of(cache, i) != 0)
            return error_set(err, STATUS_INTERNAL, "prefix %d, %s, counts %d references and has %d blocks", i,
                             in_use(cache, i) ? "in use" : "free", refs, num_blocks_of(cache, i));
        *used += in_use(cache, i);
    }
    return STATUS_OK;
}

/* Adds the blocks and the children of all prefixes to their references, or takes them away. */
static void add_known(const struct prefix_cache *cache, int32_t sign)
{
    for (int32_t i = FIRST_PREFIX; i < cache->capacity - cache->num_unused; i++) {
        const int32_t parent = cache->prefixes[i].parent;
        cache->prefixes[i].refs += sign * num_blocks_of(cache, i);
        if (parent >= FIRST_PREFIX) cache->prefixes[parent].refs += sign;
    }
}

/* A prefix counts its blocks, its children and its pins, which are known to their holders only. */
static enum status check_references(const struct prefix_cache *cache, struct error *err)
{
    enum status status = STATUS_OK;
    add_known(cache, -1);
    for (int32_t i = FIRST_PREFIX; i < cache->capacity - cache->num_unused && status == STATUS_OK; i++)
        if (cache->prefixes[i].refs < 0)
            status =
                error_set(err, STATUS_INTERNAL, "prefix %d counts %d references less than it has blocks and children",
                          i, -cache->prefixes[i].refs);
    add_known(cache, 1);
    return status;
}

/* The chains hold the prefixes in use and no others, each where its hash says, and none twice. */
static enum status check_chains(const struct prefix_cache *cache, int32_t used, struct error *err)
{
    const int32_t end = cache->capacity - cache->num_unused;
    int32_t found = 0;
    for (int32_t b = 0; b < cache->num_buckets; b++)
        for (int32_t i = cache->buckets[b]; i != PREFIX_NONE; i = cache->prefixes[i].next)
            if (i < FIRST_PREFIX || i >= end || !in_use(cache, i) || ++found > used)
                return error_set(err, STATUS_INTERNAL, "a chain of prefixes has a loop or leads to %d", i);
    for (int32_t i = FIRST_PREFIX; i < end; i++)
        if (in_use(cache, i) && prefix_cache_find(cache, cache->prefixes[i].parent, tokens_of(cache, i)) != i)
            return error_set(err, STATUS_INTERNAL, "prefix %d is in no chain, in a wrong one, or there twice", i);
    if (found == used) return STATUS_OK;
    return error_set(err, STATUS_INTERNAL, "%d prefixes are in use, but the chains hold %d", used, found);
}

static enum status check_free_list(const struct prefix_cache *cache, int32_t used, struct error *err)
{
    const int32_t end = cache->capacity - cache->num_unused, most = end - FIRST_PREFIX - used;
    int32_t length = 0;
    for (int32_t i = cache->first_free; i != PREFIX_NONE; i = cache->prefixes[i].next)
        if (i < FIRST_PREFIX || i >= end || in_use(cache, i) || ++length > most)
            return error_set(err, STATUS_INTERNAL, "the list of free prefixes has a loop or leads to %d", i);
    if (length == most) return STATUS_OK;
    return error_set(err, STATUS_INTERNAL, "%d prefixes are free, but the list of them holds %d", most, length);
}

enum status prefix_cache_check(const struct prefix_cache *cache, struct error *err)
{
    int32_t used = 0;
    enum status status = check_numbers(cache, &used, err);
    if (status == STATUS_OK) status = check_references(cache, err);
    if (status == STATUS_OK) status = check_chains(cache, used, err);
    if (status == STATUS_OK) status = check_free_list(cache, used, err);
    return status;
}
