#include "tokenizer/merges.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

#define NO_RANK UINT32_MAX
#define NO_CHUNK UINT32_MAX

/* --- the table of pairs --- */

/* Open addressing with linear probing. */
struct pair_slot {
    int32_t left, right;
    uint32_t rank; /* NO_RANK: the slot is empty */
};

static inline size_t pair_hash(int32_t left, int32_t right)
{
    const uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    const uint64_t product = key * 0x9E3779B97F4A7C15u; /* 2^64 / golden ratio: Knuth's multiplicative hashing */
    return (size_t)(product ^ product >> 32);
}

/* The slot of a pair, or the empty one where it belongs. */
static inline struct pair_slot *find_slot(const struct merges *m, int32_t left, int32_t right)
{
    for (size_t i = pair_hash(left, right) & m->mask;; i = (i + 1) & m->mask) {
        struct pair_slot *slot = &m->slots[i];
        if (slot->rank == NO_RANK || (slot->left == left && slot->right == right)) return slot;
    }
}

static inline uint32_t rank_of(const struct merges *m, int32_t left, int32_t right)
{
    return find_slot(m, left, right)->rank;
}

bool merges_init(struct merges *m, struct merge *items, size_t count, bool by_result)
{
    size_t slots = 8, first = 0;
    while (slots < count + count / 2) slots *= 2;
    *m = (struct merges){.items = items, .count = count, .mask = slots - 1, .by_result = by_result};
    m->slots = table_new(slots * sizeof *m->slots); /* ranks are NO_RANK */
    if (!m->slots) return false;
    for (size_t rank = 0; rank < count; rank++) {
        const struct merge *merge = &items[rank];
        if (!by_result || merge->result != items[first].result) first = rank;
        *find_slot(m, merge->left, merge->right) = (struct pair_slot){merge->left, merge->right, (uint32_t)first};
    }
    return true;
}

void merges_free(struct merges *m)
{
    free(m->items);
    free(m->slots);
    *m = (struct merges){0};
}

/* --- short words --- */

enum { SHORT = 32 }; /* symbols: up to here, looking at all pairs for each merge is fastest */

static size_t merge_short(const struct merges *m, int32_t *ids, size_t count)
{
    uint32_t ranks[SHORT]; /* of the pair that begins at each symbol */
    for (size_t i = 0; i + 1 < count; i++) ranks[i] = rank_of(m, ids[i], ids[i + 1]);
    while (count > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++)
            if (ranks[i] < ranks[best]) best = i;
        if (ranks[best] == NO_RANK) break;
        ids[best] = m->items[ranks[best]].result;
        count--;
        memmove(ids + best + 1, ids + best + 2, (count - best - 1) * sizeof *ids);
        memmove(ranks + best, ranks + best + 1, (count - best - 1) * sizeof *ranks);
        if (best > 0) ranks[best - 1] = rank_of(m, ids[best - 1], ids[best]);
        if (best + 1 < count) ranks[best] = rank_of(m, ids[best], ids[best + 1]);
    }
    return count;
}

/* --- long words ---
 *
 * A place is the index of a symbol in the word as it was before any merge. A symbol made of n places stands at the
 * first of them; its length stands at the first and the last, so that both neighbours are found:
 *
 *     place        0      1      2      3      4
 *     symbol     "the"   dead   dead   "r"    "e"
 *     length       3      -      3      1      1
 *
 * A candidate is a rank and the place of a pair's left symbol. A merge makes candidates of the new symbol and its
 * neighbours; the old pairs of these neighbours stay candidates, and are skipped when their turn comes because the
 * symbols have changed.
 *
 * Most candidates wait in the bucket of their rank. The bucket of the lowest rank is opened, sorted by place, and
 * merged from left to right. A heap holds the ranks of the buckets that are not empty, and the candidates of a rank
 * that is not above that of the bucket opened last: such a one can come up because nothing says that a merge's parts
 * are made by merges of lower ranks. So no bucket is opened twice. */

struct span {
    int32_t id; /* -1: dead */
    uint32_t length;
};

/* A bucket is a list of chunks, each as long as a cache line; only the first one has room left. */
enum { CHUNK_PLACES = 14 };
struct chunk {
    uint32_t next, count;
    uint32_t places[CHUNK_PLACES];
};

struct merge_scratch {
    struct span *spans;
    struct chunk *chunks;
    uint32_t *buckets; /* [merges] the first chunk of each rank; all are NO_CHUNK between two words */
    uint32_t *places;  /* of the opened bucket, and as many for sorting */
    uint64_t *heap;    /* rank << 32 | place; the least is first */
    size_t num_chunks, heap_count;
    size_t spans_capacity, chunks_capacity, places_capacity, heap_capacity;
    uint32_t free_chunk; /* a list of chunks that are in no bucket */
    int64_t opened;      /* the rank of the bucket opened last; -1: none */
    bool out_of_memory;
};

enum { MEDIUM = 1024 };         /* symbols: up to here the heap alone is fastest */
#define WHOLE_BUCKET UINT32_MAX /* in the heap, the place of a bucket: after all places */

struct merge_scratch *merge_scratch_new(void)
{
    return calloc(1, sizeof(struct merge_scratch));
}

void merge_scratch_free(struct merge_scratch *s)
{
    if (!s) return;
    free(s->spans);
    free(s->chunks);
    free(s->buckets);
    free(s->places);
    free(s->heap);
    free(s);
}

static void heap_push(struct merge_scratch *s, uint64_t key)
{
    if (!array_reserve(&s->heap, &s->heap_capacity, s->heap_count + 1, sizeof *s->heap)) {
        s->out_of_memory = true;
        return;
    }
    size_t i = s->heap_count++;
    for (; i > 0 && s->heap[(i - 1) / 2] > key; i = (i - 1) / 2) s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = key;
}

static uint64_t heap_pop(struct merge_scratch *s)
{
    const uint64_t top = s->heap[0], last = s->heap[--s->heap_count];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= s->heap_count) break;
        if (child + 1 < s->heap_count && s->heap[child + 1] < s->heap[child]) child++;
        if (s->heap[child] >= last) break;
        s->heap[i] = s->heap[child];
        i = child;
    }
    s->heap[i] = last;
    return top;
}

static uint64_t heap_key(uint32_t rank, uint32_t place)
{
    return (uint64_t)rank << 32 | place;
}

/* A chunk that is in no bucket, or NO_CHUNK. */
static uint32_t take_chunk(struct merge_scratch *s)
{
    const uint32_t chunk = s->free_chunk;
    if (chunk != NO_CHUNK) {
        s->free_chunk = s->chunks[chunk].next;
        return chunk;
    }
    if (s->num_chunks == NO_CHUNK ||
        !array_reserve(&s->chunks, &s->chunks_capacity, s->num_chunks + 1, sizeof *s->chunks))
        return NO_CHUNK;
    return (uint32_t)s->num_chunks++;
}

static void bucket_push(struct merge_scratch *s, uint32_t rank, uint32_t place)
{
    uint32_t first = s->buckets[rank];
    if (first == NO_CHUNK || s->chunks[first].count == CHUNK_PLACES) {
        const uint32_t chunk = take_chunk(s);
        if (chunk == NO_CHUNK) {
            s->out_of_memory = true;
            return;
        }
        if (first == NO_CHUNK) heap_push(s, heap_key(rank, WHOLE_BUCKET));
        s->chunks[chunk].next = first;
        s->chunks[chunk].count = 0;
        s->buckets[rank] = first = chunk;
    }
    s->chunks[first].places[s->chunks[first].count++] = place;
}

static void push(struct merge_scratch *s, uint32_t rank, uint32_t place)
{
    if (rank == NO_RANK) return;
    if ((int64_t)rank <= s->opened)
        heap_push(s, heap_key(rank, place));
    else
        bucket_push(s, rank, place);
}

/* Radix sort, a byte at a time; other[count] is room. */
static void radix_sort(uint32_t *places, uint32_t *other, size_t count)
{
    for (int shift = 0; shift < 32; shift += 8) {
        size_t starts[257] = {0};
        for (size_t i = 0; i < count; i++) starts[(places[i] >> shift & 255) + 1]++;
        for (int b = 0; b < 256; b++) starts[b + 1] += starts[b];
        for (size_t i = 0; i < count; i++) other[starts[places[i] >> shift & 255]++] = places[i];
        uint32_t *swap = places;
        places = other;
        other = swap;
    }
}

static void insertion_sort(uint32_t *places, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        const uint32_t place = places[i];
        size_t k = i;
        for (; k > 0 && places[k - 1] > place; k--) places[k] = places[k - 1];
        places[k] = place;
    }
}

static void sort_places(uint32_t *places, uint32_t *other, size_t count)
{
    size_t sorted = 1;
    while (sorted < count && places[sorted - 1] <= places[sorted]) sorted++;
    if (sorted >= count) return;
    if (count <= 64)
        insertion_sort(places, count);
    else
        radix_sort(places, other, count);
}

/* Empties a bucket into s->places, sorted. Returns the number of places. */
static size_t bucket_open(struct merge_scratch *s, uint32_t rank)
{
    size_t count = 0;
    for (uint32_t c = s->buckets[rank]; c != NO_CHUNK; c = s->chunks[c].next) count += s->chunks[c].count;
    if (!array_reserve(&s->places, &s->places_capacity, 2 * count, sizeof *s->places)) {
        s->out_of_memory = true;
        return 0;
    }
    size_t end = count;
    while (s->buckets[rank] != NO_CHUNK) { /* the last chunk comes first */
        const uint32_t c = s->buckets[rank];
        struct chunk *chunk = &s->chunks[c];
        end -= chunk->count;
        memcpy(s->places + end, chunk->places, chunk->count * sizeof *chunk->places);
        s->buckets[rank] = chunk->next;
        chunk->next = s->free_chunk;
        s->free_chunk = c;
    }
    s->opened = rank;
    sort_places(s->places, s->places + count, count);
    return count;
}

/* Whether the symbols of a merge of this rank stand at a place and after it. */
static bool is_pair(const struct merges *m, const struct merge_scratch *s, size_t count, uint32_t rank, uint32_t place)
{
    const struct merge *merge = &m->items[rank];
    const struct span *left = &s->spans[place];
    const uint32_t next = place + left->length;
    if (left->id < 0 || next == count) return false;
    if (m->by_result) return rank_of(m, left->id, s->spans[next].id) == rank;
    return left->id == merge->left && s->spans[next].id == merge->right;
}

/* Merges a candidate, unless its pair is no longer there. */
static void merge_pair(const struct merges *m, struct merge_scratch *s, size_t count, uint32_t rank, uint32_t place)
{
    const struct merge *merge = &m->items[rank];
    if (!is_pair(m, s, count, rank, place)) return;
    struct span *left = &s->spans[place], *right = left + left->length;
    const uint32_t length = left->length + right->length, end = place + length;
    right->id = -1;
    s->spans[end - 1].length = length;
    *left = (struct span){merge->result, length};
    if (place > 0) {
        const uint32_t before = place - s->spans[place - 1].length;
        push(s, rank_of(m, s->spans[before].id, merge->result), before);
    }
    if (end < count) {
        /* In "aaaa" the next merge is that of the second "aa", and takes away the right symbol of this pair. */
        const uint32_t pair_rank = rank_of(m, merge->result, s->spans[end].id);
        if (pair_rank <= rank || !is_pair(m, s, count, rank, end)) push(s, pair_rank, place);
    }
}

static void merge_bucket(const struct merges *m, struct merge_scratch *s, size_t count, uint32_t rank)
{
    const size_t num_places = bucket_open(s, rank);
    for (size_t i = 0; i < num_places; i++) {
        while (s->heap_count > 0 && s->heap[0] < heap_key(rank, s->places[i])) {
            const uint64_t key = heap_pop(s);
            merge_pair(m, s, count, (uint32_t)(key >> 32), (uint32_t)key);
        }
        merge_pair(m, s, count, rank, s->places[i]);
    }
}

static bool reserve(const struct merges *m, struct merge_scratch *s, size_t count)
{
    s->out_of_memory = false;
    s->heap_count = 0;
    s->num_chunks = 0;
    s->free_chunk = NO_CHUNK;
    s->opened = count <= MEDIUM ? INT64_MAX : -1;
    if (count > MEDIUM && !s->buckets) {
        s->buckets = malloc(m->count * sizeof *s->buckets + 1);
        if (!s->buckets) return false;
        memset(s->buckets, 0xFF, m->count * sizeof *s->buckets); /* NO_CHUNK */
    }
    return array_reserve(&s->spans, &s->spans_capacity, count, sizeof *s->spans);
}

static size_t merge_long(const struct merges *m, struct merge_scratch *s, int32_t *ids, size_t count)
{
    if (!reserve(m, s, count)) return SIZE_MAX;
    for (size_t i = 0; i < count; i++) s->spans[i] = (struct span){ids[i], 1};
    for (size_t i = 0; i + 1 < count; i++) push(s, rank_of(m, ids[i], ids[i + 1]), (uint32_t)i);
    while (s->heap_count > 0) {
        const uint64_t key = heap_pop(s);
        const uint32_t rank = (uint32_t)(key >> 32), place = (uint32_t)key;
        if (place == WHOLE_BUCKET)
            merge_bucket(m, s, count, rank);
        else
            merge_pair(m, s, count, rank, place);
    }
    if (s->out_of_memory) return SIZE_MAX;
    size_t left = 0;
    for (size_t i = 0; i < count; i += s->spans[i].length) ids[left++] = s->spans[i].id;
    return left;
}

size_t merges_apply(const struct merges *m, struct merge_scratch *s, int32_t *ids, size_t count)
{
    return count <= SHORT ? merge_short(m, ids, count) : merge_long(m, s, ids, count);
}
