#include "scheduler/prefix_cache.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* The numbers:
 *
 *     1, 2           the roots of requests without a salt, which are always there
 *     .. capacity    prefixes
 *     .. num_all     the roots of salts. Something lies below each of them, so there are never more than prefixes, and
 *                    one that is about to get its first
 */
enum { ROOT = 1, ROOT_LONG, FIRST_PREFIX };

enum { SPARE = 64 };                 /* room for prefixes that have lost their blocks, in a cache full of blocks */
enum { MOST_IDLE_BYTES = 64 << 20 }; /* of salts that no request has */

struct prefix {
    int32_t parent;     /* PREFIX_NONE: a root, or the number is free */
    int32_t next;       /* of its chain or of the free list; PREFIX_NONE: it is the last */
    int32_t refs : 31;  /* its blocks, its children and its pins; those of the first two roots are not counted */
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
    const int32_t num_prefixes = num_blocks + SPARE, num_roots = num_prefixes + 1;
    *cache = (struct prefix_cache){.capacity = FIRST_PREFIX + num_prefixes,
                                   .num_buckets = 1,
                                   .block_size = block_size,
                                   .num_groups = num_groups,
                                   .hash = hash_xxh3};
    cache->numbers = (struct prefix_numbers){.end = cache->capacity, .num_unused = num_prefixes};
    cache->root_numbers = (struct prefix_numbers){.end = cache->capacity + num_roots, .num_unused = num_roots};
    while (cache->num_buckets <= cache->capacity / 4) cache->num_buckets *= 2;
    const size_t capacity = (size_t)cache->capacity; /* zeros: memory is not touched before it is used */
    cache->prefixes = calloc(capacity + (size_t)num_roots, sizeof *cache->prefixes);
    cache->salts = calloc((size_t)num_roots, sizeof *cache->salts);
    cache->salt_buckets = calloc((size_t)cache->num_buckets, sizeof *cache->salt_buckets);
    cache->tokens = calloc(capacity * (size_t)block_size, sizeof *cache->tokens);
    cache->blocks = calloc(capacity * (size_t)num_groups, sizeof *cache->blocks);
    cache->buckets = calloc((size_t)cache->num_buckets, sizeof *cache->buckets);
    if (cache->prefixes && cache->tokens && cache->blocks && cache->buckets && cache->salts && cache->salt_buckets)
        return STATUS_OK;
    prefix_cache_free(cache);
    return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the prefix cache of %d blocks", num_blocks);
}

/* Salts that requests have are theirs alone from then on. */
static void free_salts(struct prefix_cache *cache)
{
    for (int32_t i = 0; cache->salt_buckets && i < cache->num_buckets; i++)
        for (struct cache_salt *salt = cache->salt_buckets[i], *next; salt; salt = next) {
            next = salt->next;
            salt->cache = NULL;
            if (salt->num_requests == 0) free(salt);
        }
    free(cache->salt_buckets);
    free(cache->salts);
}

void prefix_cache_free(struct prefix_cache *cache)
{
    free_salts(cache);
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

/* ---- numbers ---- */

static int32_t take_number(const struct prefix_cache *cache, struct prefix_numbers *numbers)
{
    const int32_t number = numbers->first_free;
    if (number != PREFIX_NONE)
        numbers->first_free = cache->prefixes[number].next;
    else if (numbers->num_unused > 0)
        return numbers->end - numbers->num_unused--;
    return number;
}

static void give_number(struct prefix_cache *cache, struct prefix_numbers *numbers, int32_t number)
{
    cache->prefixes[number] = (struct prefix){.parent = PREFIX_NONE, .next = numbers->first_free};
    numbers->first_free = number;
}

/* ---- salts ---- */

struct cache_salt *cache_salt_create(const char *text)
{
    const size_t length = strlen(text);
    struct cache_salt *salt = malloc(sizeof *salt + length);
    if (!salt) return NULL;
    *salt = (struct cache_salt){.hash = XXH3_64bits(text, length), .num_requests = 1, .length = length};
    memcpy(salt->text, text, length);
    return salt;
}

static bool has_root(const struct cache_salt *salt)
{
    return salt->roots[false] != PREFIX_NONE || salt->roots[true] != PREFIX_NONE;
}

/* The salt of a root; NULL: it was forgotten. */
static struct cache_salt **salt_of(const struct prefix_cache *cache, int32_t root)
{
    return &cache->salts[root - cache->capacity];
}

/* What lies below its roots is found by nobody any more. */
static void forget_salt(struct cache_salt *salt)
{
    struct cache_salt **link = &salt->cache->salt_buckets[salt->hash & (uint64_t)(salt->cache->num_buckets - 1)];
    while (*link != salt) link = &(*link)->next;
    *link = salt->next;
    for (int i = 0; i < 2; i++)
        if (salt->roots[i] != PREFIX_NONE) *salt_of(salt->cache, salt->roots[i]) = NULL;
    free(salt);
}

void cache_salt_release(struct cache_salt *salt)
{
    if (!salt || --salt->num_requests > 0) return;
    if (!salt->cache)
        free(salt);
    else if (!has_root(salt) || salt->length > MOST_IDLE_BYTES - salt->cache->idle_bytes)
        forget_salt(salt);
    else
        salt->cache->idle_bytes += salt->length;
}

struct cache_salt *prefix_cache_add_salt(struct prefix_cache *cache, struct cache_salt *salt)
{
    struct cache_salt **bucket = &cache->salt_buckets[salt->hash & (uint64_t)(cache->num_buckets - 1)];
    for (struct cache_salt *i = *bucket; i; i = i->next) {
        if (i->hash != salt->hash || i->length != salt->length || memcmp(i->text, salt->text, i->length) != 0) continue;
        if (i->num_requests++ == 0) cache->idle_bytes -= i->length;
        free(salt);
        return i;
    }
    salt->cache = cache;
    salt->next = *bucket;
    *bucket = salt;
    return salt;
}

int32_t prefix_cache_root(bool long_rope, const struct cache_salt *salt)
{
    if (!salt) return long_rope ? ROOT_LONG : ROOT;
    return salt->roots[long_rope];
}

int32_t prefix_cache_make_root(struct prefix_cache *cache, bool long_rope, struct cache_salt *salt)
{
    const int32_t known = prefix_cache_root(long_rope, salt);
    if (known != PREFIX_NONE) return known;
    const int32_t root = take_number(cache, &cache->root_numbers);
    *salt_of(cache, root) = salt;
    salt->roots[long_rope] = root;
    return root;
}

/* Nothing refers to the root any more. Its salt goes, too, if no request has it and it has no other. */
static void remove_root(struct prefix_cache *cache, int32_t root)
{
    struct cache_salt *salt = *salt_of(cache, root);
    *salt_of(cache, root) = NULL;
    give_number(cache, &cache->root_numbers, root);
    if (!salt) return;
    salt->roots[salt->roots[true] == root] = PREFIX_NONE;
    if (salt->num_requests > 0 || has_root(salt)) return;
    cache->idle_bytes -= salt->length;
    forget_salt(salt);
}

/* ---- references ---- */

/* Nothing refers to the prefix any more: its number is free. */
static void remove_prefix(struct prefix_cache *cache, int32_t prefix)
{
    struct prefix *p = &cache->prefixes[prefix];
    int32_t *link = bucket_of(cache, p->parent, tokens_of(cache, prefix));
    while (*link != prefix) link = &cache->prefixes[*link].next;
    *link = p->next;
    give_number(cache, &cache->numbers, prefix);
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
        if (parent == PREFIX_NONE)
            remove_root(cache, prefix);
        else
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

int32_t prefix_cache_insert(struct prefix_cache *cache, int32_t parent, const int32_t *tokens)
{
    if (parent == PREFIX_NONE) return PREFIX_NONE;
    int32_t *bucket = bucket_of(cache, parent, tokens);
    int32_t prefix = find_in_chain(cache, *bucket, parent, tokens);
    if (prefix != PREFIX_NONE) return prefix;
    prefix = take_number(cache, &cache->numbers);
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

/* ---- checks ---- */

static bool in_use(const struct prefix_cache *cache, int32_t number)
{
    const struct prefix *p = &cache->prefixes[number];
    return number < cache->capacity ? p->parent != PREFIX_NONE : p->refs > 0;
}

/* The numbers from this one on were never used. */
static int32_t end_of(const struct prefix_numbers *numbers)
{
    return numbers->end - numbers->num_unused;
}

static bool is_parent(const struct prefix_cache *cache, int32_t number)
{
    if (number == ROOT || number == ROOT_LONG) return true;
    const bool is_root = number >= cache->capacity;
    return number >= FIRST_PREFIX && number < end_of(is_root ? &cache->root_numbers : &cache->numbers) &&
           in_use(cache, number);
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
    for (int32_t i = FIRST_PREFIX; i < end_of(&cache->numbers); i++) {
        const int32_t parent = cache->prefixes[i].parent, refs = cache->prefixes[i].refs;
        if (parent != PREFIX_NONE && !is_parent(cache, parent))
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
    for (int32_t i = FIRST_PREFIX; i < end_of(&cache->numbers); i++) {
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
    for (int32_t i = FIRST_PREFIX; i < end_of(&cache->root_numbers) && status == STATUS_OK; i++)
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
    const int32_t end = end_of(&cache->numbers);
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

/* Of the numbers from `first` on, so many are in use. */
static enum status check_free_list(const struct prefix_cache *cache, const struct prefix_numbers *numbers,
                                   int32_t first, int32_t used, struct error *err)
{
    const int32_t end = end_of(numbers), most = end - first - used;
    int32_t length = 0;
    for (int32_t i = numbers->first_free; i != PREFIX_NONE; i = cache->prefixes[i].next)
        if (i < first || i >= end || in_use(cache, i) || ++length > most)
            return error_set(err, STATUS_INTERNAL, "the list of free prefixes has a loop or leads to %d", i);
    if (length == most) return STATUS_OK;
    return error_set(err, STATUS_INTERNAL, "%d prefixes are free, but the list of them holds %d", most, length);
}

/* A salt has a request or a root, and a root in use has its salt, unless that was forgotten. */
static enum status check_salts(const struct prefix_cache *cache, struct error *err)
{
    size_t idle_bytes = 0;
    int32_t used = 0;
    for (int32_t b = 0; b < cache->num_buckets; b++)
        for (const struct cache_salt *salt = cache->salt_buckets[b]; salt; salt = salt->next) {
            idle_bytes += salt->num_requests == 0 ? salt->length : 0;
            bool sound = salt->cache == cache && (salt->num_requests > 0 || has_root(salt));
            for (int i = 0; i < 2; i++)
                sound = sound && (salt->roots[i] == PREFIX_NONE || *salt_of(cache, salt->roots[i]) == salt);
            if (!sound)
                return error_set(err, STATUS_INTERNAL, "a salt of %d requests has the roots %d and %d",
                                 salt->num_requests, salt->roots[false], salt->roots[true]);
        }
    for (int32_t i = cache->capacity; i < end_of(&cache->root_numbers); i++) {
        const struct cache_salt *salt = *salt_of(cache, i);
        if (salt && (!in_use(cache, i) || (salt->roots[false] != i && salt->roots[true] != i)))
            return error_set(err, STATUS_INTERNAL, "root %d, %s, is not one of its salt", i,
                             in_use(cache, i) ? "in use" : "free");
        used += in_use(cache, i);
    }
    if (idle_bytes != cache->idle_bytes)
        return error_set(err, STATUS_INTERNAL, "salts without requests take %zu bytes, but %zu were counted",
                         idle_bytes, cache->idle_bytes);
    return check_free_list(cache, &cache->root_numbers, cache->capacity, used, err);
}

enum status prefix_cache_check(const struct prefix_cache *cache, struct error *err)
{
    int32_t used = 0;
    enum status status = check_numbers(cache, &used, err);
    if (status == STATUS_OK) status = check_references(cache, err);
    if (status == STATUS_OK) status = check_chains(cache, used, err);
    if (status == STATUS_OK) status = check_free_list(cache, &cache->numbers, FIRST_PREFIX, used, err);
    if (status == STATUS_OK) status = check_salts(cache, err);
    return status;
}
