#include "tokenizer/grammar/masks.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "tokenizer/grammar/loops.h"
#include "tokenizer/grammar/trie.h"

enum {
    MAX_IDS = 1024, /* of a mask: with more it is kept as a whole */
    FEW_NODES = 16  /* are looked at one by one */
};

struct record {
    struct mask *mask;
    uint32_t num_exits;
    uint32_t exits[]; /* nodes of the trie where the unit is done and tokens go on */
};

/* A mask in the making. */
struct search {
    struct pushdown *p;
    const struct vocabulary *v;
    struct place **path;        /* [longest + 1] where the bytes up to a depth lead */
    const struct loops **loops; /* [longest + 1] of these places, where they are worth while */
    uint32_t *ends;             /* [longest + 1] of the nodes there */
    const uint32_t *whole[MASK_MAX_WHOLE];
    int32_t num_whole, num_ids;
    uint32_t *bits; /* [mask_words] in place of ids when they are many; NULL: they are not */
    uint32_t *exits;
    size_t num_exits, exit_capacity;
    bool failed;
    int32_t ids[MAX_IDS];
};

static struct search *begin_search(struct pushdown *p, const struct vocabulary *v)
{
    struct search *s = malloc(sizeof *s);
    if (!s) return NULL;
    memset(s, 0, offsetof(struct search, ids));
    s->p = p;
    s->v = v;
    s->path = malloc(((size_t)v->longest + 1) * sizeof *s->path);
    s->loops = malloc(((size_t)v->longest + 1) * sizeof *s->loops);
    s->ends = malloc(((size_t)v->longest + 1) * sizeof *s->ends);
    s->failed = !s->path || !s->loops || !s->ends;
    return s;
}

static void end_search(struct search *s)
{
    if (!s) return;
    free(s->bits);
    free(s->path);
    free(s->loops);
    free(s->ends);
    free(s->exits);
    free(s);
}

static void join_words(uint32_t *restrict words, const uint32_t *restrict more, int32_t count)
{
    for (int32_t i = 0; i < count; i++) words[i] |= more[i];
}

/* From ids to bits; false: no memory. */
static bool use_bits(struct search *s)
{
    if (s->bits) return true;
    s->bits = calloc((size_t)s->v->mask_words + 1, sizeof *s->bits);
    if (!s->bits) {
        s->failed = true;
        return false;
    }
    for (int32_t i = 0; i < s->num_ids; i++) mask_set(s->bits, s->ids[i]);
    s->num_ids = 0;
    return true;
}

static void set_ids(struct search *s, const int32_t *ids, uint32_t count)
{
    if (!s->bits && count <= (uint32_t)(MAX_IDS - s->num_ids)) {
        for (uint32_t i = 0; i < count; i++) s->ids[s->num_ids++] = ids[i];
    } else if (use_bits(s)) {
        for (uint32_t i = 0; i < count; i++) mask_set(s->bits, ids[i]);
    }
}

/* ---- tries ---- */

/* Sets the tokens of a node and below. */
static void set_subtree(struct search *s, const struct trie *t, uint32_t node)
{
    const uint32_t first = t->nodes[node].first_token, end = t->nodes[t->nodes[node].end].first_token;
    const uint32_t *mask = end - first >= MAX_IDS ? trie_large_mask(t, node, s->v->mask_words) : NULL;
    if (!mask)
        set_ids(s, t->tokens + first, end - first);
    else if (use_bits(s))
        join_words(s->bits, mask, s->v->mask_words);
}

static void add_exit(struct search *s, uint32_t node)
{
    if (!array_reserve(&s->exits, &s->exit_capacity, s->num_exits + 1, sizeof *s->exits))
        s->failed = true;
    else
        s->exits[s->num_exits++] = node;
}

static void enter(struct search *s, const struct trie *t, uint32_t node, struct place *at)
{
    const struct trie_node *n = &t->nodes[node];
    s->path[n->depth] = at;
    s->ends[n->depth] = n->end;
    /* Long tokens are looked at from each place, so what follows it is not made ready for them; nor for few nodes. */
    const bool is_few = n->end - node <= FEW_NODES;
    const struct loops *known = atomic_load_explicit(&at->loops, memory_order_acquire);
    if (!known) known = is_few ? &no_loops : loops_find(s->p, at, t == &s->v->long_tokens);
    s->loops[n->depth] = known;
}

/* Sets the tokens below a node that lead somewhere from `from`, which is where the node's text has led to; lists the
 * nodes where the bottom of the stacks is reached. */
static void walk_below(struct search *s, const struct trie *t, uint32_t node, struct place *from, bool lists_exits)
{
    const struct trie_node *nodes = t->nodes;
    const uint32_t end = nodes[node].end;
    enter(s, t, node, from);
    for (uint32_t i = node + 1; i < end && !s->failed;) {
        const struct trie_node *n = &nodes[i];
        if (loops_allow(s->loops[n->depth - 1], n->classes, n->most_characters)) {
            set_subtree(s, t, i);
            i = n->end;
            continue;
        }
        struct place *before = s->path[n->depth - 1];
        if (n->byte > before->last_byte) { /* and so are all that follow below the same node */
            i = s->ends[n->depth - 1];
            continue;
        }
        struct place *at = pushdown_step(s->p, before, n->byte);
        if (!at) s->failed = true;
        if (!at || place_is_dead(at)) {
            i = n->end;
            continue;
        }
        set_ids(s, t->tokens + n->first_token, n[1].first_token - n->first_token);
        if (lists_exits && at->may_end && n->end > i + 1) add_exit(s, i);
        if (at->num_configurations > 0) enter(s, t, i, at);
        i = at->num_configurations > 0 ? i + 1 : n->end;
    }
}

/* ---- masks ---- */

/* Keeps the bits as a whole mask in place of all others; false: no memory. */
static bool keep_whole(struct search *s)
{
    const size_t bytes = (size_t)s->v->mask_words * sizeof *s->bits;
    for (int32_t i = 0; i < s->num_whole; i++) join_words(s->bits, s->whole[i], s->v->mask_words);
    uint32_t *kept = pushdown_allocate(s->p, bytes);
    if (!kept) return false;
    memcpy(kept, s->bits, bytes);
    s->whole[0] = kept;
    s->num_whole = 1;
    return true;
}

/* The mask of what was found; NULL: no memory. */
static struct mask *keep_mask(struct search *s)
{
    if (s->failed || (s->bits && !keep_whole(s))) return NULL;
    const size_t bytes = (size_t)s->num_ids * sizeof *s->ids;
    struct mask *m = pushdown_allocate(s->p, sizeof *m + bytes);
    if (!m) return NULL;
    *m = (struct mask){.num_whole = s->num_whole, .num_ids = s->num_ids};
    for (int32_t i = 0; i < s->num_whole; i++) m->whole[i] = s->whole[i];
    if (bytes) memcpy(m->ids, s->ids, bytes);
    return m;
}

static void join_mask(struct search *s, const struct mask *m)
{
    for (int32_t i = 0; i < m->num_whole; i++) {
        if (s->num_whole < MASK_MAX_WHOLE)
            s->whole[s->num_whole++] = m->whole[i];
        else if (use_bits(s))
            join_words(s->bits, m->whole[i], s->v->mask_words);
    }
    set_ids(s, m->ids, (uint32_t)m->num_ids);
}

void mask_write(const struct mask *m, const struct vocabulary *v, uint32_t *words)
{
    const size_t bytes = (size_t)v->mask_words * sizeof *words;
    if (m->num_whole == 0)
        memset(words, 0, bytes);
    else
        memcpy(words, m->whole[0], bytes);
    for (int32_t i = 1; i < m->num_whole; i++) join_words(words, m->whole[i], v->mask_words);
    for (int32_t i = 0; i < m->num_ids; i++) mask_set(words, m->ids[i]);
}

/* ---- records ---- */

static struct record *make_record(struct pushdown *p, const struct vocabulary *v, struct place *at)
{
    struct search *s = begin_search(p, v);
    struct record *record = NULL;
    if (s && !s->failed) walk_below(s, &v->short_tokens, 0, at, true);
    struct mask *mask = s ? keep_mask(s) : NULL;
    if (mask) record = pushdown_allocate(p, sizeof *record + s->num_exits * sizeof *s->exits);
    if (record) {
        record->mask = mask;
        record->num_exits = (uint32_t)s->num_exits;
        if (s->num_exits) memcpy(record->exits, s->exits, s->num_exits * sizeof *s->exits);
    }
    end_search(s);
    return record;
}

static const struct record *find_record(struct pushdown *p, const struct vocabulary *v, struct place *at)
{
    struct record *record = atomic_load_explicit(&at->record, memory_order_acquire);
    if (record) return record;
    record = make_record(p, v, at);
    if (record) atomic_store_explicit(&at->record, record, memory_order_release);
    return record;
}

static bool is_bottom(const struct stack *stack)
{
    return stack->num_entries == 1 && stack->entries[0].call == STACK_BOTTOM;
}

/* The part of a stack that belongs to a record, over the bottom: counted calls, because what they read is as short as a
 * character, and another copy follows. *below gets the rest. NULL: no memory. */
static const struct stack *record_stack(struct pushdown *p, const struct stack *stack, const struct stack **below)
{
    struct stack_entry entry = stack->entries[0];
    if (stack->num_entries > 1 || entry.count == 0) {
        *below = stack;
        return pushdown_bottom(p);
    }
    entry.count = pushdown_nearest_count(p, entry, SHORT_TOKEN);
    entry.below = record_stack(p, entry.below, below);
    return entry.below ? pushdown_stack(p, entry) : NULL;
}

/* Adds the short tokens that a configuration allows. */
static void add_configuration(struct search *s, struct configuration c)
{
    const struct stack *below = NULL;
    const struct stack *top = record_stack(s->p, c.stack, &below);
    struct place *at = top ? pushdown_place(s->p, (struct configuration){c.state, top}) : NULL;
    const struct record *record = at ? find_record(s->p, s->v, at) : NULL;
    const bool goes_on = record && record->num_exits && !is_bottom(below);
    struct place *popped = goes_on ? pushdown_pop(s->p, below) : NULL;
    if (!record || (goes_on && !popped)) {
        s->failed = true;
        return;
    }
    join_mask(s, record->mask);
    for (uint32_t i = 0; goes_on && i < record->num_exits; i++)
        walk_below(s, &s->v->short_tokens, record->exits[i], popped, false);
}

static struct mask *make_mask(struct pushdown *p, const struct vocabulary *v, struct place *at)
{
    struct search *s = begin_search(p, v);
    if (!s) return NULL;
    for (int32_t i = 0; i < at->num_configurations && !s->failed; i++) add_configuration(s, at->configurations[i]);
    if (!s->failed) walk_below(s, &v->long_tokens, 0, at, false);
    struct mask *mask = keep_mask(s);
    end_search(s);
    return mask;
}

struct mask *masks_find(struct pushdown *p, const struct vocabulary *v, struct place *at)
{
    struct mask *mask = atomic_load_explicit(&at->mask, memory_order_acquire);
    if (mask) return mask;
    mask = make_mask(p, v, at);
    if (mask) atomic_store_explicit(&at->mask, mask, memory_order_release);
    return mask;
}

/* ---- the first token ---- */

/* Whether a token that has other bytes at the start of a text may begin one. */
static bool allows_first(struct search *s, struct place *at, const struct first_token *token)
{
    for (uint32_t i = 0; i < token->length; i++) {
        at = pushdown_step(s->p, at, (uint8_t)s->v->first_bytes[token->offset + i]);
        if (!at) s->failed = true;
        if (!at || place_is_dead(at)) return false;
    }
    return token->is_allowed && (token->length > 0 || at->num_configurations > 0);
}

struct mask *masks_find_first(struct pushdown *p, const struct vocabulary *v)
{
    struct place *start = pushdown_start(p);
    struct mask *mask = masks_find(p, v, start);
    if (!mask || v->num_first_tokens == 0) return mask;
    struct search *s = begin_search(p, v);
    if (s && use_bits(s)) mask_write(mask, v, s->bits);
    for (uint32_t i = 0; s && i < v->num_first_tokens && !s->failed; i++) {
        const struct first_token *token = &v->first_tokens[i];
        s->bits[token->id / 32] &= ~(UINT32_C(1) << (token->id % 32));
        if (allows_first(s, start, token)) mask_set(s->bits, token->id);
    }
    mask = s ? keep_mask(s) : NULL;
    if (mask) atomic_store_explicit(pushdown_first_mask(p), mask, memory_order_release);
    end_search(s);
    return mask;
}
