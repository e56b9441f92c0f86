#include "tests/support/slow_grammar.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { POSITIONS = SLOW_MAX_TEXT + 1 };

static int below(struct random *r, int limit)
{
    return (int)(random_bits(r) % (uint64_t)limit);
}

/* ---- random grammars ---- */

int slow_random_bytes(struct random *r, int most, char out[8])
{
    static const char *const parts[] = {"a",    "a",   "b", "b", "c", "\xc3\xa9", "\xc3", "\xa9", "\xe2\x82\xac",
                                        "\xe2", "\xac"};
    int length = 0;
    for (int i = 1 + below(r, most); i > 0; i--) {
        const char *part = parts[below(r, 12) % (int)(sizeof parts / sizeof *parts)];
        if (length + strlen(part) > 8) break;
        memcpy(out + length, part, strlen(part));
        length += (int)strlen(part);
    }
    return length;
}

static struct character_range random_range(struct random *r)
{
    static const uint32_t points[] = {'a', 'b', 'c', 'a', 'b', 'z', 0xE9, 0x20AC, 0xD7FF, 0xE000, 0x10FFFF, 0x7FF};
    uint32_t a = points[below(r, 12)], b = points[below(r, 4) ? below(r, 6) : below(r, 12)];
    return a < b ? (struct character_range){a, b} : (struct character_range){b, a};
}

static void random_automaton(struct slow_node *n, struct random *r)
{
    static const unsigned char bytes[] = {'a', 'b', 'c', 0xC3, 0xA9};
    n->count = 1 + below(r, SLOW_MAX_STATES);
    for (int s = 0; s < n->count; s++) {
        n->ends[s] = below(r, 3) == 0;
        for (int c = 0; c < 256; c++) n->next[s * 256 + c] = -1;
        for (size_t i = 0; i < sizeof bytes; i++)
            if (below(r, 2)) n->next[s * 256 + bytes[i]] = below(r, n->count);
    }
}

static int random_node(struct slow_grammar *g, struct random *r, int depth)
{
    const int index = g->num_nodes++;
    struct slow_node *n = &g->nodes[index];
    assert(g->num_nodes <= SLOW_MAX_NODES);
    memset(n, 0, sizeof *n);
    const int draw = below(r, 20);
    if (depth == 0 || g->num_nodes > SLOW_MAX_NODES - 32 || draw < 4) {
        const int leaf = below(r, 12);
        n->kind = leaf < 5    ? SLOW_BYTES
                  : leaf < 9  ? SLOW_RULE
                  : leaf < 11 ? SLOW_CHARACTERS
                  : leaf % 2  ? SLOW_EMPTY
                              : SLOW_NEVER;
        if (n->kind == SLOW_BYTES) n->count = slow_random_bytes(r, 3, n->bytes);
        if (n->kind == SLOW_RULE) n->children[0] = below(r, g->num_rules);
        if (n->kind == SLOW_CHARACTERS) n->count = 1 + below(r, SLOW_MAX_CHILDREN);
        for (int i = 0; n->kind == SLOW_CHARACTERS && i < n->count; i++) n->ranges[i] = random_range(r);
    } else if (draw < 5) {
        n->kind = SLOW_AUTOMATON;
        random_automaton(n, r);
    } else if (draw < 8) {
        n->kind = SLOW_REPEAT;
        n->least = below(r, 3);
        n->most = below(r, 3) == 0 ? GRAMMAR_UNBOUNDED : n->least + below(r, 4);
        if (below(r, 6) == 0) n->most = 100; /* counted */
        const int part = random_node(g, r, depth - 1);
        g->nodes[index].children[0] = part;
    } else {
        n->kind = draw < 14 ? SLOW_SEQUENCE : SLOW_CHOICE;
        n->count = 1 + below(r, 3);
        for (int i = 0; i < n->count; i++) {
            /* Some nodes are used twice. */
            const bool again = i > 0 && below(r, 5) == 0;
            const int child = again ? g->nodes[index].children[i - 1] : random_node(g, r, depth - 1);
            g->nodes[index].children[i] = child;
        }
    }
    return index;
}

void slow_grammar_random(struct slow_grammar *g, struct random *r)
{
    g->num_nodes = 0;
    g->num_rules = 1 + below(r, SLOW_MAX_RULES - 1);
    for (int i = 0; i < g->num_rules; i++) g->rules[i] = random_node(g, r, 1 + below(r, 4));
}

static grammar_node add_node(const struct slow_grammar *g, struct grammar_builder *b, const int32_t *rules,
                             grammar_node *made, int index)
{
    const struct slow_node *n = &g->nodes[index];
    grammar_node parts[SLOW_MAX_CHILDREN];
    if (made[index] >= 0) return made[index];
    for (int i = 0; i < SLOW_MAX_CHILDREN; i++) {
        const bool has_child = ((n->kind == SLOW_SEQUENCE || n->kind == SLOW_CHOICE) && i < n->count) ||
                               (n->kind == SLOW_REPEAT && i == 0);
        if (has_child) parts[i] = add_node(g, b, rules, made, n->children[i]);
    }
    const struct grammar_automaton automaton = {n->count, n->next, n->ends};
    switch (n->kind) {
    case SLOW_NEVER:
        return made[index] = grammar_never(b);
    case SLOW_EMPTY:
        return made[index] = grammar_empty(b);
    case SLOW_BYTES:
        return made[index] = grammar_bytes(b, n->bytes, (size_t)n->count);
    case SLOW_CHARACTERS:
        return made[index] = grammar_characters(b, n->ranges, n->count);
    case SLOW_SEQUENCE:
        return made[index] = grammar_sequence(b, parts, n->count);
    case SLOW_CHOICE:
        return made[index] = grammar_choice(b, parts, n->count);
    case SLOW_REPEAT:
        return made[index] = grammar_repeat(b, parts[0], n->least, n->most);
    case SLOW_AUTOMATON:
        return made[index] = grammar_from_automaton(b, &automaton);
    case SLOW_RULE:
        return made[index] = grammar_reference(b, rules[n->children[0]]);
    }
    return -1;
}

int32_t slow_grammar_add(const struct slow_grammar *g, struct grammar_builder *b)
{
    int32_t rules[SLOW_MAX_RULES];
    grammar_node made[SLOW_MAX_NODES];
    for (int i = 0; i < SLOW_MAX_NODES; i++) made[i] = -1;
    for (int i = 0; i < g->num_rules; i++) rules[i] = grammar_rule(b, NULL);
    for (int i = 0; i < g->num_rules; i++) grammar_define(b, rules[i], add_node(g, b, rules, made, g->rules[i]));
    return rules[0];
}

/* ---- the recognizer ---- */

/* For each node and position i: bit j of derives says that the node has the text from i to j; begins says that one of
 * its texts begins with all that is left from i; has_text that it has any. Bits are only ever added. */
struct facts {
    const struct slow_grammar *g;
    const unsigned char *text;
    int length;
    uint32_t derives[SLOW_MAX_NODES][POSITIONS];
    bool begins[SLOW_MAX_NODES][POSITIONS];
    bool has_text[SLOW_MAX_NODES];
};

struct fact {
    uint32_t derives;
    bool begins;
};

/* A text that matches `length` bytes of all `bytes`. */
static struct fact match_bytes(const struct facts *f, int i, const unsigned char *bytes, int count)
{
    int matched = 0;
    while (matched < count && i + matched < f->length && f->text[i + matched] == bytes[matched]) matched++;
    return (struct fact){matched == count ? UINT32_C(1) << (i + count) : 0, i + matched == f->length};
}

static int write_utf8(uint32_t c, unsigned char out[4])
{
    if (c < 0x80) return out[0] = (unsigned char)c, 1;
    if (c < 0x800) return out[0] = (unsigned char)(0xC0 | c >> 6), out[1] = (unsigned char)(0x80 | (c & 63)), 2;
    if (c < 0x10000) {
        out[0] = (unsigned char)(0xE0 | c >> 12), out[1] = (unsigned char)(0x80 | (c >> 6 & 63));
        return out[2] = (unsigned char)(0x80 | (c & 63)), 3;
    }
    out[0] = (unsigned char)(0xF0 | c >> 18), out[1] = (unsigned char)(0x80 | (c >> 12 & 63));
    out[2] = (unsigned char)(0x80 | (c >> 6 & 63)), out[3] = (unsigned char)(0x80 | (c & 63));
    return 4;
}

static bool in_ranges(const struct slow_node *n, uint32_t c)
{
    for (int k = 0; k < n->count; k++)
        if (c >= n->ranges[k].first && c <= n->ranges[k].last) return c < 0xD800 || c > 0xDFFF;
    return false;
}

/* Tries every character that the first byte may begin. */
static struct fact match_characters(const struct facts *f, const struct slow_node *n, int i)
{
    struct fact all = {0};
    if (i == f->length) return (struct fact){0, true};
    const uint32_t lead = f->text[i];
    const uint32_t bits = lead < 0x80 ? 0 : lead < 0xE0 ? 6 : lead < 0xF0 ? 12 : 18;
    const uint32_t first = lead < 0x80 ? lead : (lead & (lead < 0xE0 ? 31 : lead < 0xF0 ? 15 : 7)) << bits;
    for (uint32_t c = first; c < first + (UINT32_C(1) << bits); c++) {
        unsigned char bytes[4];
        if (c > 0x10FFFF || !in_ranges(n, c)) continue;
        const struct fact one = match_bytes(f, i, bytes, write_utf8(c, bytes));
        all.derives |= one.derives;
        all.begins |= one.begins;
    }
    return all;
}

static struct fact match_sequence(const struct facts *f, const struct slow_node *n, int i)
{
    uint32_t ends = UINT32_C(1) << i;
    struct fact all = {0};
    for (int k = 0; k < n->count; k++) {
        uint32_t next = 0;
        bool rest = true;
        for (int later = k + 1; later < n->count; later++) rest = rest && f->has_text[n->children[later]];
        for (int j = 0; j <= f->length; j++) {
            if (!(ends >> j & 1)) continue;
            next |= f->derives[n->children[k]][j];
            all.begins |= rest && f->begins[n->children[k]][j];
        }
        ends = next;
    }
    all.derives = ends;
    return all;
}

static struct fact match_repeat(const struct facts *f, const struct slow_node *n, int i)
{
    const int part = n->children[0], enough = n->least + f->length + 1;
    const int most = n->most == GRAMMAR_UNBOUNDED || n->most > enough ? enough : n->most;
    uint32_t ends = UINT32_C(1) << i;
    struct fact all = {0, i == f->length && n->least == 0};
    for (int k = 0; k <= most && ends; k++) {
        uint32_t next = 0;
        if (k >= n->least) all.derives |= ends;
        for (int j = 0; j <= f->length && k < most; j++) {
            if (!(ends >> j & 1)) continue;
            next |= f->derives[part][j];
            all.begins |= f->begins[part][j];
        }
        ends = next;
    }
    all.begins |= (all.derives >> f->length & 1) != 0;
    return all;
}

static bool can_end(const struct slow_node *n, int state)
{
    bool reached[SLOW_MAX_STATES] = {false};
    reached[state] = true;
    for (int round = 0; round < n->count; round++)
        for (int s = 0; s < n->count; s++)
            for (int c = 0; reached[s] && c < 256; c++)
                if (n->next[s * 256 + c] >= 0) reached[n->next[s * 256 + c]] = true;
    for (int s = 0; s < n->count; s++)
        if (reached[s] && n->ends[s]) return true;
    return false;
}

static struct fact match_automaton(const struct facts *f, const struct slow_node *n, int i)
{
    struct fact all = {0};
    int state = 0;
    for (; state >= 0; i++) {
        if (n->ends[state]) all.derives |= UINT32_C(1) << i;
        if (i == f->length) return (struct fact){all.derives, can_end(n, state)};
        state = n->next[state * 256 + f->text[i]];
    }
    return all;
}

static struct fact match_choice(const struct facts *f, const struct slow_node *n, int i)
{
    struct fact all = {0};
    for (int k = 0; k < n->count; k++) {
        all.derives |= f->derives[n->children[k]][i];
        all.begins |= f->begins[n->children[k]][i];
    }
    return all;
}

static struct fact match_node(const struct facts *f, const struct slow_node *n, int i)
{
    const struct fact nothing = {0}, empty = {UINT32_C(1) << i, i == f->length};
    switch (n->kind) {
    case SLOW_NEVER:
        return nothing;
    case SLOW_EMPTY:
        return empty;
    case SLOW_BYTES:
        return match_bytes(f, i, (const unsigned char *)n->bytes, n->count);
    case SLOW_CHARACTERS:
        return match_characters(f, n, i);
    case SLOW_SEQUENCE:
        return match_sequence(f, n, i);
    case SLOW_CHOICE:
        return match_choice(f, n, i);
    case SLOW_REPEAT:
        return match_repeat(f, n, i);
    case SLOW_AUTOMATON:
        return match_automaton(f, n, i);
    case SLOW_RULE: {
        const int node = f->g->rules[n->children[0]];
        return (struct fact){f->derives[node][i], f->begins[node][i]};
    }
    }
    return nothing;
}

/* A node has a text if it derives one of any length, which is asked for without looking at the text. */
static bool node_has_text(const struct facts *f, const struct slow_node *n)
{
    bool all = true, any = false;
    for (int i = 0; i < n->count && (n->kind == SLOW_SEQUENCE || n->kind == SLOW_CHOICE); i++) {
        all = all && f->has_text[n->children[i]];
        any = any || f->has_text[n->children[i]];
    }
    switch (n->kind) {
    case SLOW_NEVER:
        return false;
    case SLOW_SEQUENCE:
        return all;
    case SLOW_CHOICE:
        return any;
    case SLOW_REPEAT:
        return n->least == 0 || n->most == 0 || f->has_text[n->children[0]];
    case SLOW_AUTOMATON:
        return can_end(n, 0);
    case SLOW_RULE:
        return f->has_text[f->g->rules[n->children[0]]];
    case SLOW_CHARACTERS:
        for (int i = 0; i < n->count; i++)
            if (n->ranges[i].first < 0xD800 || n->ranges[i].last > 0xDFFF) return true;
        return false;
    default:
        return true;
    }
}

static void find_texts(struct facts *f)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (int n = 0; n < f->g->num_nodes; n++) {
            if (f->has_text[n] || !node_has_text(f, &f->g->nodes[n])) continue;
            f->has_text[n] = changed = true;
        }
    }
}

static void find_facts(struct facts *f)
{
    find_texts(f);
    for (bool changed = true; changed;) {
        changed = false;
        for (int n = f->g->num_nodes - 1; n >= 0; n--) {
            for (int i = f->length; i >= 0; i--) {
                const struct fact fact = match_node(f, &f->g->nodes[n], i);
                if (fact.derives == f->derives[n][i] && fact.begins == f->begins[n][i]) continue;
                f->derives[n][i] |= fact.derives;
                f->begins[n][i] |= fact.begins;
                changed = true;
            }
        }
    }
}

struct slow_answer slow_grammar_ask(const struct slow_grammar *g, const char *text, int length)
{
    assert(length <= SLOW_MAX_TEXT);
    struct facts *f = calloc(1, sizeof *f);
    assert(f);
    f->g = g, f->text = (const unsigned char *)text, f->length = length;
    find_facts(f);
    const struct slow_answer answer = {f->derives[g->rules[0]][0] >> length & 1, f->begins[g->rules[0]][0]};
    free(f);
    return answer;
}

bool slow_grammar_has_text(const struct slow_grammar *g)
{
    return slow_grammar_ask(g, "", 0).is_prefix;
}
