#include "tokenizer/grammar/trie.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

enum {
    LARGE_NODE = 1024
}; /* tokens of a node and below: setting their bits one by one takes longer than joining masks */

/* ---- order ---- */

struct sorted_token {
    const char *bytes;
    uint32_t length;
    int32_t id;
};

static int compare_tokens(const void *a, const void *b)
{
    const struct sorted_token *x = a, *y = b;
    const int difference = memcmp(x->bytes, y->bytes, x->length < y->length ? x->length : y->length);
    if (difference) return difference;
    if (x->length != y->length) return x->length < y->length ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* The tokens of so many bytes, in their order: [*count], to be freed. */
static struct sorted_token *sort_tokens(const struct vocabulary *v, uint32_t least, uint32_t most, uint32_t *count)
{
    struct sorted_token *sorted = malloc(((size_t)v->num_ids + 1) * sizeof *sorted);
    *count = 0;
    for (int32_t id = 0; sorted && id < v->num_ids; id++) {
        const struct token_bytes s = v->spellings[id];
        if (s.length >= least && s.length <= most)
            sorted[(*count)++] = (struct sorted_token){v->bytes + s.offset, s.length, id};
    }
    if (sorted) qsort(sorted, *count, sizeof *sorted, compare_tokens);
    return sorted;
}

/* ---- nodes ---- */

struct trie_builder {
    struct trie *trie;
    size_t capacity;
    uint32_t *path; /* [longest + 1] the nodes of the last token, by depth */
    uint32_t depth; /* of the last token */
};

static bool add_node(struct trie_builder *b, uint32_t depth, uint8_t byte, uint32_t first_token)
{
    struct trie *t = b->trie;
    if (!array_reserve(&t->nodes, &b->capacity, (size_t)t->num_nodes + 2, sizeof *t->nodes)) return false;
    t->nodes[t->num_nodes] = (struct trie_node){.first_token = first_token, .depth = (uint16_t)depth, .byte = byte};
    b->path[depth] = t->num_nodes++;
    return true;
}

/* Ends the nodes of the last token that are deeper. */
static void close_nodes(struct trie_builder *b, uint32_t depth)
{
    for (; b->depth > depth; b->depth--) b->trie->nodes[b->path[b->depth]].end = b->trie->num_nodes;
}

static uint32_t common_length(const struct sorted_token *a, const struct sorted_token *b)
{
    uint32_t i = 0;
    while (i < a->length && i < b->length && a->bytes[i] == b->bytes[i]) i++;
    return i;
}

static bool add_tokens(struct trie_builder *b, const struct sorted_token *sorted, uint32_t count)
{
    struct trie *t = b->trie;
    if (!add_node(b, 0, 0, 0)) return false;
    for (uint32_t i = 0; i < count; i++) {
        close_nodes(b, i ? common_length(&sorted[i - 1], &sorted[i]) : 0);
        while (b->depth < sorted[i].length) {
            b->depth++;
            if (!add_node(b, b->depth, (uint8_t)sorted[i].bytes[b->depth - 1], i)) return false;
        }
        t->tokens[i] = sorted[i].id;
    }
    close_nodes(b, 0);
    t->nodes[0].end = t->num_nodes;
    t->nodes[t->num_nodes] = (struct trie_node){.end = t->num_nodes, .first_token = count};
    t->num_tokens = count;
    return true;
}

/* ---- what is below a node ---- */

static void join(struct trie_node *to, uint64_t classes, unsigned most_characters)
{
    to->classes |= classes;
    if (most_characters > 255) most_characters = 255;
    if (most_characters > to->most_characters) to->most_characters = (uint8_t)most_characters;
}

/* Adds the texts that begin with a character of the class, whose bytes up to `node` were read and of which `left` are
 * missing; the next is from low to high. */
static void join_rest(const struct trie *t, struct trie_node *to, uint32_t node, int left, uint64_t class, uint8_t low,
                      uint8_t high)
{
    const struct trie_node *n = &t->nodes[node];
    join(to, class, 1);
    for (uint32_t c = node + 1; c < n->end; c = t->nodes[c].end) {
        const uint8_t byte = t->nodes[c].byte;
        if (left == 0)
            join(to, t->nodes[c].classes, 1u + t->nodes[c].most_characters);
        else if (byte < low || byte > high)
            join(to, CLASS_BROKEN, 0);
        else
            join_rest(t, to, c, left - 1, class, 0x80, 0xBF);
    }
}

/* Finds the classes of a node, whose descendants have theirs. */
static void classify_node(const struct trie *t, uint32_t node)
{
    struct trie_node *to = &t->nodes[node];
    const uint8_t byte = to->byte;
    if (byte < 0x80)
        join_rest(t, to, node, 0, vocabulary_class(byte), 0, 0);
    else if (byte < 0xC2 || byte > 0xF4)
        join(to, CLASS_BROKEN, 0);
    else if (byte < 0xE0)
        join_rest(t, to, node, 1, CLASS_TWO_BYTES, 0x80, 0xBF);
    else if (byte < 0xF0)
        join_rest(t, to, node, 2, CLASS_THREE_BYTES, byte == 0xE0 ? 0xA0 : 0x80, byte == 0xED ? 0x9F : 0xBF);
    else
        join_rest(t, to, node, 3, CLASS_FOUR_BYTES, byte == 0xF0 ? 0x90 : 0x80, byte == 0xF4 ? 0x8F : 0xBF);
}

static uint32_t num_tokens(const struct trie *t, uint32_t node)
{
    return t->nodes[t->nodes[node].end].first_token - t->nodes[node].first_token;
}

/* Finds the classes of all nodes, and counts large ones. */
static void classify_nodes(struct trie *t)
{
    for (uint32_t i = t->num_nodes; i-- > 0;) {
        classify_node(t, i);
        if (num_tokens(t, i) >= LARGE_NODE) t->num_large++;
    }
}

static bool make_large_masks(struct trie *t, int32_t mask_words)
{
    uint32_t count = 0;
    t->large_nodes = malloc(((size_t)t->num_large + 1) * sizeof *t->large_nodes);
    t->large_masks = calloc((size_t)t->num_large * (size_t)mask_words + 1, sizeof *t->large_masks);
    if (!t->large_nodes || !t->large_masks) return false;
    for (uint32_t i = 0; i < t->num_nodes; i++) {
        const uint32_t first = t->nodes[i].first_token, end = first + num_tokens(t, i);
        if (end - first < LARGE_NODE) continue;
        uint32_t *mask = t->large_masks + (size_t)count * (size_t)mask_words;
        t->large_nodes[count++] = i;
        for (uint32_t k = first; k < end; k++) mask_set(mask, t->tokens[k]);
    }
    return true;
}

const uint32_t *trie_large_mask(const struct trie *t, uint32_t node, int32_t mask_words)
{
    uint32_t low = 0, high = t->num_large;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (t->large_nodes[middle] == node) return t->large_masks + (size_t)middle * (size_t)mask_words;
        if (t->large_nodes[middle] < node)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

bool trie_build(const struct vocabulary *v, uint32_t least, uint32_t most, struct trie *t)
{
    uint32_t count;
    struct sorted_token *sorted = sort_tokens(v, least, most, &count);
    struct trie_builder b = {.trie = t, .path = malloc(((size_t)v->longest + 1) * sizeof *b.path)};
    t->tokens = malloc(((size_t)count + 1) * sizeof *t->tokens);
    const bool fits = sorted && b.path && t->tokens && add_tokens(&b, sorted, count);
    free(sorted);
    free(b.path);
    if (!fits) return false;
    classify_nodes(t);
    return make_large_masks(t, v->mask_words);
}

void trie_free(struct trie *t)
{
    free(t->nodes);
    free(t->tokens);
    free(t->large_nodes);
    free(t->large_masks);
}
