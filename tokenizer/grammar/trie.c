#include "tokenizer/grammar/trie.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

enum { LARGE_NODE = 1024 }; /* tokens below: setting their bits one by one takes longer than joining masks */

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

/* The tokens that have bytes, in their order: [*count], to be freed. */
static struct sorted_token *sort_tokens(const struct vocabulary *v, uint32_t *count)
{
    struct sorted_token *sorted = malloc(((size_t)v->num_ids + 1) * sizeof *sorted);
    *count = 0;
    for (int32_t id = 0; sorted && id < v->num_ids; id++) {
        const struct token_bytes s = v->spellings[id];
        if (s.length) sorted[(*count)++] = (struct sorted_token){v->bytes + s.offset, s.length, id};
    }
    if (sorted) qsort(sorted, *count, sizeof *sorted, compare_tokens);
    return sorted;
}

/* ---- nodes ---- */

struct trie_builder {
    struct vocabulary *v;
    size_t capacity;
    uint32_t *path; /* [longest + 1] the nodes of the last token, by depth */
    uint32_t depth; /* of the last token */
};

static bool add_node(struct trie_builder *b, uint32_t depth, uint8_t byte, uint32_t first_token)
{
    struct vocabulary *v = b->v;
    if (!array_reserve(&v->nodes, &b->capacity, (size_t)v->num_nodes + 2, sizeof *v->nodes)) return false;
    v->nodes[v->num_nodes] = (struct trie_node){.first_token = first_token, .depth = (uint16_t)depth, .byte = byte};
    b->path[depth] = v->num_nodes++;
    return true;
}

/* Ends the nodes of the last token that are deeper. */
static void close_nodes(struct trie_builder *b, uint32_t depth)
{
    for (; b->depth > depth; b->depth--) b->v->nodes[b->path[b->depth]].end = b->v->num_nodes;
}

static uint32_t common_length(const struct sorted_token *a, const struct sorted_token *b)
{
    uint32_t i = 0;
    while (i < a->length && i < b->length && a->bytes[i] == b->bytes[i]) i++;
    return i;
}

static bool add_tokens(struct trie_builder *b, const struct sorted_token *sorted, uint32_t count)
{
    struct vocabulary *v = b->v;
    if (!add_node(b, 0, 0, 0)) return false;
    for (uint32_t i = 0; i < count; i++) {
        close_nodes(b, i ? common_length(&sorted[i - 1], &sorted[i]) : 0);
        while (b->depth < sorted[i].length) {
            b->depth++;
            if (!add_node(b, b->depth, (uint8_t)sorted[i].bytes[b->depth - 1], i)) return false;
        }
        v->tokens[i] = sorted[i].id;
    }
    close_nodes(b, 0);
    v->nodes[0].end = v->num_nodes;
    v->nodes[v->num_nodes] = (struct trie_node){.end = v->num_nodes, .first_token = count};
    v->num_tokens = count;
    return true;
}

/* ---- what is below a node ---- */

static bool has_token(const struct vocabulary *v, uint32_t node)
{
    return v->nodes[node + 1].first_token > v->nodes[node].first_token;
}

static void join(struct trie_node *to, uint64_t classes, unsigned most_characters)
{
    to->classes |= classes;
    if (most_characters > 255) most_characters = 255;
    if (most_characters > to->most_characters) to->most_characters = (uint8_t)most_characters;
}

/* Adds the texts that begin with the character whose bytes up to `node` were read, and `left` are missing; the next is
 * from low to high. */
static void join_rest(const struct vocabulary *v, struct trie_node *to, uint32_t node, int left, uint64_t class,
                      uint8_t low, uint8_t high)
{
    const struct trie_node *n = &v->nodes[node];
    if (left == 0) {
        join(to, class | n->classes, 1u + n->most_characters);
        return;
    }
    if (has_token(v, node)) join(to, CLASS_BROKEN, 0);
    for (uint32_t c = node + 1; c < n->end; c = v->nodes[c].end) {
        const uint8_t byte = v->nodes[c].byte;
        if (byte < low || byte > high)
            join(to, CLASS_BROKEN, 0);
        else
            join_rest(v, to, c, left - 1, class, 0x80, 0xBF);
    }
}

/* Adds the texts that begin with a child. */
static void join_child(const struct vocabulary *v, struct trie_node *to, uint32_t child)
{
    const uint8_t byte = v->nodes[child].byte;
    if (byte < 0x80)
        join_rest(v, to, child, 0, vocabulary_class(byte), 0, 0);
    else if (byte < 0xC2 || byte > 0xF4)
        join(to, CLASS_BROKEN, 0);
    else if (byte < 0xE0)
        join_rest(v, to, child, 1, CLASS_TWO_BYTES, 0x80, 0xBF);
    else if (byte < 0xF0)
        join_rest(v, to, child, 2, CLASS_THREE_BYTES, byte == 0xE0 ? 0xA0 : 0x80, byte == 0xED ? 0x9F : 0xBF);
    else
        join_rest(v, to, child, 3, CLASS_FOUR_BYTES, byte == 0xF0 ? 0x90 : 0x80, byte == 0xF4 ? 0x8F : 0xBF);
}

/* Finds the classes below all nodes, and counts large ones. */
static void classify_nodes(struct vocabulary *v)
{
    for (uint32_t i = v->num_nodes; i-- > 0;) {
        struct trie_node *n = &v->nodes[i];
        for (uint32_t c = i + 1; c < n->end; c = v->nodes[c].end) join_child(v, n, c);
        if (v->nodes[n->end].first_token - v->nodes[i + 1].first_token >= LARGE_NODE) v->num_large++;
    }
}

static bool make_large_masks(struct vocabulary *v)
{
    uint32_t count = 0;
    v->large_nodes = malloc(((size_t)v->num_large + 1) * sizeof *v->large_nodes);
    v->large_masks = calloc((size_t)v->num_large * (size_t)v->mask_words + 1, sizeof *v->large_masks);
    if (!v->large_nodes || !v->large_masks) return false;
    for (uint32_t i = 0; i < v->num_nodes; i++) {
        const uint32_t first = v->nodes[i + 1].first_token, end = v->nodes[v->nodes[i].end].first_token;
        if (end - first < LARGE_NODE) continue;
        uint32_t *mask = v->large_masks + (size_t)count * (size_t)v->mask_words;
        v->large_nodes[count++] = i;
        for (uint32_t t = first; t < end; t++) mask_set(mask, v->tokens[t]);
    }
    return true;
}

bool trie_build(struct vocabulary *v)
{
    uint32_t count;
    struct sorted_token *sorted = sort_tokens(v, &count);
    struct trie_builder b = {.v = v, .path = malloc(((size_t)v->longest + 1) * sizeof *b.path)};
    v->tokens = malloc(((size_t)count + 1) * sizeof *v->tokens);
    const bool fits = sorted && b.path && v->tokens && add_tokens(&b, sorted, count);
    free(sorted);
    free(b.path);
    if (!fits) return false;
    classify_nodes(v);
    return make_large_masks(v);
}
