#include "scheduler/prefix_cache.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/plural.h"

/* The roots of requests without a salt, one for each namespace, are always there. The prefixes follow them, up to the
 * capacity. From there on, each salt has CACHE_NAMESPACES numbers for its roots. */
enum { FIRST_ROOT = 1, FIRST_PREFIX = FIRST_ROOT + CACHE_NAMESPACES };

enum { SPARE = 64 };                 /* room for prefixes that have lost their blocks, in a cache full of blocks */
enum { MOST_IDLE_BYTES = 64 << 20 }; /* of salts that no request has */

struct prefix {
    int32_t parent;     /* PREFIX_NONE: a root, or the number is free */
    int32_t next;       /* of its chain or of the free list; PREFIX_NONE: it is the last */
    int32_t refs : 31;  /* its blocks, its children and its pins; those of roots are not counted here */
    bool had_child : 1; /* false: nothing has followed it yet, so that no chain need be searched for what does */
};
_Static_assert(sizeof(struct prefix) == 12, "prefix_cache.h says what a prefix costs");

enum { NO_PLACE = -1 };

/* Places of salts. There are as many chains as places: `first` is that of the salts whose hash, modulo their number, is
 * this place's index. */
struct salt_place {
    struct cache_salt *salt; /* NULL: it was forgotten, or the place is free */
    int32_t refs;            /* children and pins of its roots */
    int32_t next;            /* of its chain, or of the list of free places */
    int32_t first;
};

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
                                   .first_free_place = NO_PLACE,
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

enum status prefix_cache_add_snapshots(struct prefix_cache *cache, struct error *err)
{
    cache->snapshots = calloc((size_t)cache->capacity, sizeof *cache->snapshots);
    if (cache->snapshots) return STATUS_OK;
    return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the snapshots of %d prefixes", cache->capacity);
}

/* Salts that requests have are theirs alone from then on. */
static void free_salts(struct prefix_cache *cache)
{
    for (int32_t i = 0; i < cache->num_places; i++) {
        struct cache_salt *salt = cache->places[i].salt;
        if (!salt) continue;
        salt->cache = NULL;
        if (salt->num_requests == 0) free(salt);
    }
    free(cache->places);
}

void prefix_cache_free(struct prefix_cache *cache)
{
    free_salts(cache);
    free(cache->prefixes);
    free(cache->tokens);
    free(cache->blocks);
    free(cache->snapshots);
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
    if (parent < cache->capacity && !cache->prefixes[parent].had_child) return PREFIX_NONE;
    for (int32_t i = first; i != PREFIX_NONE; i = cache->prefixes[i].next)
        if (cache->prefixes[i].parent == parent && !memcmp(tokens_of(cache, i), tokens, bytes)) return i;
    return PREFIX_NONE;
}

int32_t prefix_cache_find(const struct prefix_cache *cache, int32_t parent, const int32_t *tokens)
{
    if (parent == PREFIX_NONE) return PREFIX_NONE;
    return find_in_chain(cache, *bucket_of(cache, parent, tokens), parent, tokens);
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

static int32_t *chain_of(const struct prefix_cache *cache, const struct cache_salt *salt)
{
    return &cache->places[salt->hash % (uint64_t)cache->num_places].first;
}

static void link_salt(struct prefix_cache *cache, int32_t place)
{
    int32_t *first = chain_of(cache, cache->places[place].salt);
    cache->places[place].next = *first;
    *first = place;
}

static void free_place(struct prefix_cache *cache, int32_t place)
{
    cache->places[place].next = cache->first_free_place;
    cache->first_free_place = place;
}

/* Twice as many places. False: out of memory. */
static bool grow_places(struct prefix_cache *cache)
{
    const int32_t before = cache->num_places, count = before ? 2 * before : 16;
    struct salt_place *places = realloc(cache->places, (size_t)count * sizeof *places);
    if (!places) return false;
    memset(places + before, 0, (size_t)(count - before) * sizeof *places);
    cache->places = places;
    cache->num_places = count;
    for (int32_t i = 0; i < count; i++) places[i].first = NO_PLACE;
    for (int32_t i = 0; i < before; i++)
        if (places[i].salt) link_salt(cache, i);
    for (int32_t i = count - 1; i >= before; i--) free_place(cache, i);
    return true;
}

/* What lies below its roots, if anything, is found by nobody any more. */
static void forget_salt(struct prefix_cache *cache, int32_t place)
{
    struct salt_place *p = &cache->places[place];
    int32_t *link = chain_of(cache, p->salt);
    while (*link != place) link = &cache->places[*link].next;
    *link = p->next;
    free(p->salt);
    p->salt = NULL;
    if (p->refs == 0) free_place(cache, place);
}

void cache_salt_release(struct cache_salt *salt)
{
    if (!salt || --salt->num_requests > 0) return;
    struct prefix_cache *cache = salt->cache;
    if (!cache)
        free(salt);
    else if (cache->places[salt->place].refs == 0 || salt->length > MOST_IDLE_BYTES - cache->idle_bytes)
        forget_salt(cache, salt->place);
    else
        cache->idle_bytes += salt->length;
}

static struct cache_salt *find_salt(const struct prefix_cache *cache, const struct cache_salt *salt)
{
    for (int32_t i = *chain_of(cache, salt); i != NO_PLACE; i = cache->places[i].next) {
        struct cache_salt *other = cache->places[i].salt;
        if (other->hash == salt->hash && other->length == salt->length &&
            memcmp(other->text, salt->text, salt->length) == 0)
            return other;
    }
    return NULL;
}

struct cache_salt *prefix_cache_add_salt(struct prefix_cache *cache, struct cache_salt *salt)
{
    struct cache_salt *known = cache->num_places > 0 ? find_salt(cache, salt) : NULL;
    if (known) {
        if (known->num_requests++ == 0) cache->idle_bytes -= known->length;
        free(salt);
        return known;
    }
    if (cache->first_free_place == NO_PLACE && !grow_places(cache)) return salt;
    salt->cache = cache;
    salt->place = cache->first_free_place;
    cache->first_free_place = cache->places[salt->place].next;
    cache->places[salt->place].salt = salt;
    link_salt(cache, salt->place);
    return salt;
}

int32_t prefix_cache_root(int32_t cache_namespace, const struct cache_salt *salt)
{
    if (!salt) return FIRST_ROOT + cache_namespace;
    return salt->cache ? salt->cache->capacity + CACHE_NAMESPACES * salt->place + cache_namespace : PREFIX_NONE;
}

static int32_t place_of(const struct prefix_cache *cache, int32_t root)
{
    return (root - cache->capacity) / CACHE_NAMESPACES;
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

static void add_references(const struct prefix_cache *cache, int32_t prefix, int32_t count)
{
    if (prefix >= cache->capacity)
        cache->places[place_of(cache, prefix)].refs += count;
    else if (prefix >= FIRST_PREFIX)
        cache->prefixes[prefix].refs += count;
}

/* With the last reference to its roots, a salt goes that no request has. */
static void drop_root_reference(struct prefix_cache *cache, int32_t place)
{
    struct salt_place *p = &cache->places[place];
    if (--p->refs > 0) return;
    if (!p->salt) {
        free_place(cache, place);
    } else if (p->salt->num_requests == 0) {
        cache->idle_bytes -= p->salt->length;
        forget_salt(cache, place);
    }
}

/* A prefix without references is removed. Then its parent has one less, which may have been its last. */
static void drop_reference(struct prefix_cache *cache, int32_t prefix)
{
    while (prefix >= FIRST_PREFIX && prefix < cache->capacity && --cache->prefixes[prefix].refs == 0) {
        const int32_t parent = cache->prefixes[prefix].parent;
        remove_prefix(cache, prefix);
        prefix = parent;
    }
    if (prefix >= cache->capacity) drop_root_reference(cache, place_of(cache, prefix));
}

bool prefix_cache_has_one_reference(const struct prefix_cache *cache, int32_t prefix)
{
    return cache->prefixes[prefix].refs == 1;
}

void prefix_cache_pin(struct prefix_cache *cache, int32_t prefix)
{
    add_references(cache, prefix, 1);
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
    add_references(cache, prefix, 1);
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

bool prefix_cache_has_all_blocks(const struct prefix_cache *cache, int32_t prefix)
{
    for (int32_t g = 0; g < cache->num_groups; g++)
        if (!blocks_of(cache, prefix)[g]) return false;
    return true;
}

int32_t prefix_cache_parent(const struct prefix_cache *cache, int32_t prefix)
{
    return cache->prefixes[prefix].parent;
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
    add_references(cache, parent, 1);
    if (prefix == PREFIX_NONE) {
        drop_reference(cache, parent); /* the child may have been all that it was made for */
        return PREFIX_NONE;
    }
    cache->prefixes[prefix] = (struct prefix){.parent = parent, .next = *bucket, .refs = 0};
    if (parent < cache->capacity) cache->prefixes[parent].had_child = true;
    *bucket = prefix;
    memcpy(tokens_of(cache, prefix), tokens, (size_t)cache->block_size * sizeof *tokens);
    return prefix;
}

/* ---- checks ---- */

static bool in_use(const struct prefix_cache *cache, int32_t prefix)
{
    return cache->prefixes[prefix].parent != PREFIX_NONE;
}

/* The numbers of prefixes from this one on were never used. */
static int32_t end_of_used(const struct prefix_cache *cache)
{
    return cache->capacity - cache->num_unused;
}

static bool is_parent(const struct prefix_cache *cache, int32_t number)
{
    if (number < FIRST_PREFIX) return number > 0;
    if (number < cache->capacity) return number < end_of_used(cache) && in_use(cache, number);
    return place_of(cache, number) < cache->num_places && cache->places[place_of(cache, number)].refs > 0;
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
    for (int32_t i = FIRST_PREFIX; i < end_of_used(cache); i++) {
        const int32_t parent = cache->prefixes[i].parent, refs = cache->prefixes[i].refs;
        if (parent != PREFIX_NONE && !is_parent(cache, parent))
            return error_set(err, STATUS_INTERNAL, "prefix %d follows %d, which is no prefix", i, parent);
        if (in_use(cache, i) ? refs <= 0 : refs != 0 || num_blocks_of(cache, i) != 0)
            return error_set(err, STATUS_INTERNAL, "prefix %d, %s, counts %d references and has %d blocks", i,
                             in_use(cache, i) ? "in use" : "free", refs, num_blocks_of(cache, i));
        if (cache->snapshots && cache->snapshots[i] != 0 && !in_use(cache, i))
            return error_set(err, STATUS_INTERNAL, "prefix %d is free, but has the snapshot %d", i,
                             cache->snapshots[i]);
        if (cache->snapshots && cache->snapshots[i] > 0 && !prefix_cache_has_all_blocks(cache, i))
            return error_set(err, STATUS_INTERNAL, "prefix %d has the snapshot %d, but lacks blocks", i,
                             cache->snapshots[i]);
        *used += in_use(cache, i);
    }
    return STATUS_OK;
}

/* Adds the blocks and the children of all prefixes to their references, or takes them away. */
static void add_known(const struct prefix_cache *cache, int32_t sign)
{
    for (int32_t i = FIRST_PREFIX; i < end_of_used(cache); i++) {
        const int32_t parent = cache->prefixes[i].parent;
        cache->prefixes[i].refs += sign * num_blocks_of(cache, i);
        add_references(cache, parent, sign);
    }
}

/* A prefix counts its blocks, its children and its pins, which are known to their holders only. */
static enum status check_references(const struct prefix_cache *cache, struct error *err)
{
    enum status status = STATUS_OK;
    add_known(cache, -1);
    for (int32_t i = FIRST_PREFIX; i < end_of_used(cache) && status == STATUS_OK; i++)
        if (cache->prefixes[i].refs < 0)
            status =
                error_set(err, STATUS_INTERNAL, "prefix %d counts %d references less than it has blocks and children",
                          i, -cache->prefixes[i].refs);
    for (int32_t i = 0; i < cache->num_places && status == STATUS_OK; i++)
        if (cache->places[i].refs < 0)
            status = error_set(err, STATUS_INTERNAL, "the roots of salt %d count %d references less than children", i,
                               -cache->places[i].refs);
    add_known(cache, 1);
    return status;
}

/* The chains hold the prefixes in use and no others, each where its hash says, and none twice. */
static enum status check_chains(const struct prefix_cache *cache, int32_t used, struct error *err)
{
    const int32_t end = end_of_used(cache);
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
    const int32_t end = end_of_used(cache), most = end - FIRST_PREFIX - used;
    int32_t length = 0;
    for (int32_t i = cache->first_free; i != PREFIX_NONE; i = cache->prefixes[i].next)
        if (i < FIRST_PREFIX || i >= end || in_use(cache, i) || ++length > most)
            return error_set(err, STATUS_INTERNAL, "the list of free prefixes has a loop or leads to %d", i);
    if (length == most) return STATUS_OK;
    return error_set(err, STATUS_INTERNAL, "%d prefixes are free, but the list of them holds %d", most, length);
}

/* Whether the salt of a place is in the chain of its hash. */
static bool is_linked(const struct prefix_cache *cache, int32_t place)
{
    int32_t i = *chain_of(cache, cache->places[place].salt);
    while (i != NO_PLACE && i != place) i = cache->places[i].next;
    return i == place;
}

/* A salt has a request or something below its roots. Without either, its place is free. */
static enum status check_salts(const struct prefix_cache *cache, struct error *err)
{
    size_t idle_bytes = 0;
    int32_t num_free = 0, listed = 0;
    for (int32_t i = 0; i < cache->num_places; i++) {
        const struct salt_place *p = &cache->places[i];
        num_free += !p->salt && p->refs == 0;
        if (!p->salt) continue;
        if (p->salt->cache != cache || p->salt->place != i || !is_linked(cache, i) ||
            (p->salt->num_requests <= 0 && p->refs == 0))
            return error_set(err, STATUS_INTERNAL, "salt %d, of %d requests and %d prefixes, is not where it belongs",
                             i, p->salt->num_requests, p->refs);
        if (p->salt->num_requests == 0) idle_bytes += p->salt->length;
    }
    if (idle_bytes != cache->idle_bytes)
        return error_set(err, STATUS_INTERNAL, "salts without requests take %zu bytes, but %zu were counted",
                         idle_bytes, cache->idle_bytes);
    for (int32_t i = cache->first_free_place; i != NO_PLACE && listed <= num_free; i = cache->places[i].next) listed++;
    if (listed == num_free) return STATUS_OK;
    return error_set(err, STATUS_INTERNAL, "%d places of salts are free, but the list of them holds %d", num_free,
                     listed);
}

enum status prefix_cache_check(const struct prefix_cache *cache, struct error *err)
{
    int32_t used = 0;
    enum status status = check_numbers(cache, &used, err);
    if (status == STATUS_OK) status = check_references(cache, err);
    if (status == STATUS_OK) status = check_chains(cache, used, err);
    if (status == STATUS_OK) status = check_free_list(cache, used, err);
    if (status == STATUS_OK) status = check_salts(cache, err);
    return status;
}
