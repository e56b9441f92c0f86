#include "tokenizer/grammar/free_text.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

/* Two automata run side by side: that of Aho and Corasick (1975) knows the longest beginning of a mark with which the
 * text so far ends, and the other how far the text is in a character. A state is a pair of theirs. */

/* ---- the marks ---- */

struct mark_state {
    int32_t next[256]; /* while the tree is built -1: none */
    int32_t shorter;   /* the state of the longest shorter end of what it stands for */
    uint64_t marks;    /* that end here */
};

struct mark_tree {
    struct mark_state *states; /* [count] */
    int32_t count;
};

static int32_t add_state(struct mark_tree *t)
{
    struct mark_state *state = &t->states[t->count];
    *state = (struct mark_state){.shorter = 0};
    memset(state->next, 0xFF, sizeof state->next);
    return t->count++;
}

static void add_mark(struct mark_tree *t, const char *mark, int32_t index)
{
    int32_t at = 0;
    for (const unsigned char *c = (const unsigned char *)mark; *c; c++) {
        if (t->states[at].next[*c] < 0) t->states[at].next[*c] = add_state(t);
        at = t->states[at].next[*c];
    }
    t->states[at].marks |= UINT64_C(1) << index;
}

/* Gives every state a next one for every byte: in the order of their depth, so that shorter ones are complete. */
static void complete(struct mark_tree *t, int32_t *queue)
{
    int32_t head = 0, tail = 0;
    queue[tail++] = 0;
    while (head < tail) {
        const int32_t at = queue[head++];
        struct mark_state *state = &t->states[at];
        const struct mark_state *shorter = &t->states[state->shorter];
        state->marks |= shorter->marks;
        for (int c = 0; c < 256; c++) {
            const int32_t otherwise = at == 0 ? 0 : shorter->next[c];
            if (state->next[c] < 0) {
                state->next[c] = otherwise;
            } else {
                t->states[state->next[c]].shorter = otherwise;
                queue[tail++] = state->next[c];
            }
        }
    }
}

/* ---- characters ---- */

/* How far the text is in a character: what may follow. */
enum character_state {
    WHOLE,
    ONE_MORE,
    TWO_MORE,
    THREE_MORE,
    AFTER_E0,
    AFTER_ED,
    AFTER_F0,
    AFTER_F4,
    NUM_CHARACTER_STATES
};

static const struct {
    unsigned char first, last; /* bytes that lead */
    enum character_state from, to;
} character_bytes[] = {
    {0x00, 0x7F, WHOLE, WHOLE},       {0xC2, 0xDF, WHOLE, ONE_MORE},    {0xE0, 0xE0, WHOLE, AFTER_E0},
    {0xE1, 0xEC, WHOLE, TWO_MORE},    {0xED, 0xED, WHOLE, AFTER_ED},    {0xEE, 0xEF, WHOLE, TWO_MORE},
    {0xF0, 0xF0, WHOLE, AFTER_F0},    {0xF1, 0xF3, WHOLE, THREE_MORE},  {0xF4, 0xF4, WHOLE, AFTER_F4},
    {0x80, 0xBF, ONE_MORE, WHOLE},    {0x80, 0xBF, TWO_MORE, ONE_MORE}, {0x80, 0xBF, THREE_MORE, TWO_MORE},
    {0xA0, 0xBF, AFTER_E0, ONE_MORE}, {0x80, 0x9F, AFTER_ED, ONE_MORE}, {0x90, 0xBF, AFTER_F0, TWO_MORE},
    {0x80, 0x8F, AFTER_F4, TWO_MORE},
};

/* ---- both ---- */

struct product {
    const struct mark_tree *tree;
    int32_t *number; /* of each pair; -1: not met */
    int32_t *pairs;  /* [count] */
    int32_t *next;   /* [count, 256] */
    bool *ends;
    size_t pairs_capacity, next_capacity, ends_capacity;
    int32_t count;
    int32_t which;
};

/* The number of a pair, a new one if it was not met; -1: memory ran out. */
static int32_t visit(struct product *p, int32_t mark_state, enum character_state character)
{
    const int32_t pair = mark_state * NUM_CHARACTER_STATES + (int32_t)character;
    if (p->number[pair] >= 0) return p->number[pair];
    const size_t count = (size_t)p->count + 1;
    if (!array_reserve(&p->pairs, &p->pairs_capacity, count, sizeof *p->pairs) ||
        !array_reserve(&p->next, &p->next_capacity, count * 256, sizeof *p->next) ||
        !array_reserve(&p->ends, &p->ends_capacity, count, sizeof *p->ends))
        return -1;
    const uint64_t marks = p->tree->states[mark_state].marks;
    p->pairs[p->count] = pair;
    p->ends[p->count] = p->which < 0 ? character == WHOLE : marks >> p->which & 1;
    memset(p->next + (size_t)p->count * 256, 0xFF, 256 * sizeof *p->next);
    return p->number[pair] = p->count++;
}

/* Where the bytes lead from pair `at`: behind a mark nothing follows, and one that is not looked for leads nowhere. */
static bool follow(struct product *p, int32_t at)
{
    const int32_t mark_state = p->pairs[at] / NUM_CHARACTER_STATES, character = p->pairs[at] % NUM_CHARACTER_STATES;
    const struct mark_state *from = &p->tree->states[mark_state];
    if (from->marks) return true;
    for (size_t i = 0; i < sizeof character_bytes / sizeof *character_bytes; i++) {
        if ((int32_t)character_bytes[i].from != character) continue;
        for (int c = character_bytes[i].first; c <= character_bytes[i].last; c++) {
            const uint64_t marks = p->tree->states[from->next[c]].marks;
            if (marks && (p->which < 0 || !(marks >> p->which & 1))) continue;
            const int32_t to = visit(p, from->next[c], character_bytes[i].to);
            if (to < 0) return false;
            p->next[(size_t)at * 256 + (size_t)c] = to;
        }
    }
    return true;
}

static bool multiply(const struct mark_tree *tree, int32_t which, struct grammar_builder *b, grammar_node *out)
{
    const size_t num_pairs = (size_t)tree->count * NUM_CHARACTER_STATES;
    struct product p = {.tree = tree, .which = which, .number = malloc(num_pairs * sizeof *p.number)};
    bool ok = p.number != NULL;
    if (ok) memset(p.number, 0xFF, num_pairs * sizeof *p.number);
    ok = ok && visit(&p, 0, WHOLE) == 0;
    for (int32_t at = 0; ok && at < p.count; at++) ok = follow(&p, at);
    if (ok) *out = grammar_from_automaton(b, &(struct grammar_automaton){p.count, p.next, p.ends});
    free(p.number);
    free(p.pairs);
    free(p.next);
    free(p.ends);
    return ok;
}

enum status free_text_node(const struct free_text_marks *marks, int32_t which, struct grammar_builder *b,
                           grammar_node *out, struct error *err)
{
    struct mark_tree tree = {0};
    size_t bytes = 0;
    *out = grammar_never(b);
    for (int32_t i = 0; i < marks->count; i++) bytes += strlen(marks->list[i]);
    if (bytes > FREE_TEXT_MAX_BYTES)
        return error_set(err, STATUS_UNSUPPORTED, "the strings that text is searched for have more than %d bytes",
                         FREE_TEXT_MAX_BYTES);
    tree.states = malloc((bytes + 1) * sizeof *tree.states);
    int32_t *queue = malloc((bytes + 1) * sizeof *queue);
    bool ok = tree.states && queue;
    if (ok) {
        add_state(&tree);
        for (int32_t i = 0; i < marks->count; i++) add_mark(&tree, marks->list[i], i);
        complete(&tree, queue);
        ok = multiply(&tree, which, b, out);
    }
    free(queue);
    free(tree.states);
    return ok ? STATUS_OK : error_set(err, STATUS_OUT_OF_MEMORY, "no memory for a grammar");
}
