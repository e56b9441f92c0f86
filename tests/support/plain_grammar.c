#include "tests/support/plain_grammar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "base/utf8.h"

enum kind { BYTES, CHARACTERS, SEQUENCE, CHOICE, REPEAT, AUTOMATON, REFERENCE };

struct node {
    enum kind kind;
    char *bytes;
    size_t length;
    struct character_range *ranges;
    grammar_node *parts;
    int32_t count; /* of ranges, parts or states */
    int32_t least, most, rule;
    int32_t *next;
    bool *ends;
    int32_t *distance; /* [count] bytes from a state to the nearest end; -1: no end can be reached */
    int64_t shortest;  /* bytes of the shortest text, and a little for each node; NO_TEXT: there is none */
};
#define NO_TEXT INT64_MAX

struct rule {
    char *name;
    grammar_node node; /* -1: not defined */
};

struct grammar_builder {
    struct node *nodes;
    size_t num_nodes, node_capacity;
    struct rule *rules;
    size_t num_rules, rule_capacity;
};

struct grammar {
    struct grammar_builder *b; /* taken from the builder, which is empty then */
    int32_t root;
    int references;
};

static void require(bool right, const char *sentence)
{
    if (right) return;
    fprintf(stderr, "plain_grammar: %s\n", sentence);
    abort();
}

static void *copy(const void *data, size_t bytes)
{
    void *copied = malloc(bytes + 1);
    require(copied != NULL, "no memory");
    if (bytes > 0) memcpy(copied, data, bytes);
    return copied;
}

static grammar_node add(struct grammar_builder *b, struct node node)
{
    require(array_reserve(&b->nodes, &b->node_capacity, b->num_nodes + 1, sizeof *b->nodes), "no memory");
    b->nodes[b->num_nodes] = node;
    return (grammar_node)b->num_nodes++;
}

/* The functions of grammar.h, by the names that the linker's --wrap gives them. */
struct grammar_builder *__wrap_grammar_builder_create(void);
void __wrap_grammar_builder_free(struct grammar_builder *b);
grammar_node __wrap_grammar_empty(struct grammar_builder *b);
grammar_node __wrap_grammar_never(struct grammar_builder *b);
grammar_node __wrap_grammar_bytes(struct grammar_builder *b, const char *bytes, size_t length);
grammar_node __wrap_grammar_characters(struct grammar_builder *b, const struct character_range *ranges, int32_t count);
grammar_node __wrap_grammar_sequence(struct grammar_builder *b, const grammar_node *parts, int32_t count);
grammar_node __wrap_grammar_choice(struct grammar_builder *b, const grammar_node *parts, int32_t count);
grammar_node __wrap_grammar_repeat(struct grammar_builder *b, grammar_node part, int32_t least, int32_t most);
grammar_node __wrap_grammar_from_automaton(struct grammar_builder *b, const struct grammar_automaton *a);
int32_t __wrap_grammar_rule(struct grammar_builder *b, const char *name);
grammar_node __wrap_grammar_reference(struct grammar_builder *b, int32_t rule);
void __wrap_grammar_define(struct grammar_builder *b, int32_t rule, grammar_node node);
bool __wrap_grammar_is_defined(const struct grammar_builder *b, int32_t rule);
enum status __wrap_grammar_build(struct grammar_builder *b, int32_t root, struct grammar **out, struct error *err);
struct grammar *__wrap_grammar_keep(struct grammar *g);
void __wrap_grammar_free(struct grammar *g);

struct grammar_builder *__wrap_grammar_builder_create(void)
{
    return calloc(1, sizeof(struct grammar_builder));
}

static void clear(struct grammar_builder *b)
{
    for (size_t i = 0; i < b->num_nodes; i++) {
        struct node *n = &b->nodes[i];
        free(n->bytes);
        free(n->ranges);
        free(n->parts);
        free(n->next);
        free(n->ends);
        free(n->distance);
    }
    for (size_t i = 0; i < b->num_rules; i++) free(b->rules[i].name);
    free(b->nodes);
    free(b->rules);
    *b = (struct grammar_builder){0};
}

void __wrap_grammar_builder_free(struct grammar_builder *b)
{
    if (b) clear(b);
    free(b);
}

grammar_node __wrap_grammar_bytes(struct grammar_builder *b, const char *bytes, size_t length)
{
    return add(b, (struct node){.kind = BYTES, .bytes = copy(bytes, length), .length = length});
}

grammar_node __wrap_grammar_empty(struct grammar_builder *b)
{
    return __wrap_grammar_bytes(b, "", 0);
}

grammar_node __wrap_grammar_never(struct grammar_builder *b)
{
    return add(b, (struct node){.kind = CHOICE});
}

grammar_node __wrap_grammar_characters(struct grammar_builder *b, const struct character_range *ranges, int32_t count)
{
    struct character_range *copied = copy(ranges, (size_t)count * sizeof *ranges);
    return add(b, (struct node){.kind = CHARACTERS, .ranges = copied, .count = count});
}

static grammar_node add_parts(struct grammar_builder *b, enum kind kind, const grammar_node *parts, int32_t count)
{
    for (int32_t i = 0; i < count; i++)
        require(parts[i] >= 0 && (size_t)parts[i] < b->num_nodes, "a part that is no node");
    grammar_node *copied = copy(parts, (size_t)count * sizeof *parts);
    return add(b, (struct node){.kind = kind, .parts = copied, .count = count});
}

grammar_node __wrap_grammar_sequence(struct grammar_builder *b, const grammar_node *parts, int32_t count)
{
    return add_parts(b, SEQUENCE, parts, count);
}

grammar_node __wrap_grammar_choice(struct grammar_builder *b, const grammar_node *parts, int32_t count)
{
    return add_parts(b, CHOICE, parts, count);
}

grammar_node __wrap_grammar_repeat(struct grammar_builder *b, grammar_node part, int32_t least, int32_t most)
{
    require(least >= 0 && (most == GRAMMAR_UNBOUNDED || most >= least), "wrong counts of a repetition");
    const grammar_node node = add_parts(b, REPEAT, &part, 1);
    b->nodes[node].least = least;
    b->nodes[node].most = most;
    return node;
}

/* Bytes from each state to an end, as many times as something changes. */
static int32_t *find_distances(const struct grammar_automaton *a)
{
    int32_t *distance = malloc((size_t)a->num_states * sizeof *distance);
    require(distance != NULL, "no memory");
    for (int32_t s = 0; s < a->num_states; s++) distance[s] = a->ends[s] ? 0 : -1;
    for (bool changed = true; changed;) {
        changed = false;
        for (int32_t s = a->num_states - 1; s >= 0; s--) {
            for (int c = 0; c < 256; c++) {
                const int32_t to = a->next[s * 256 + c];
                require(to >= -1 && to < a->num_states, "a state that an automaton does not have");
                if (to < 0 || distance[to] < 0 || (distance[s] >= 0 && distance[s] <= distance[to] + 1)) continue;
                distance[s] = distance[to] + 1;
                changed = true;
            }
        }
    }
    return distance;
}

grammar_node __wrap_grammar_from_automaton(struct grammar_builder *b, const struct grammar_automaton *a)
{
    require(a->num_states > 0, "an automaton without states");
    const size_t n = (size_t)a->num_states;
    return add(b, (struct node){.kind = AUTOMATON,
                                .count = a->num_states,
                                .next = copy(a->next, n * 256 * sizeof *a->next),
                                .ends = copy(a->ends, n * sizeof *a->ends),
                                .distance = find_distances(a)});
}

int32_t __wrap_grammar_rule(struct grammar_builder *b, const char *name)
{
    for (size_t i = 0; name && i < b->num_rules; i++)
        if (b->rules[i].name && strcmp(b->rules[i].name, name) == 0) return (int32_t)i;
    require(array_reserve(&b->rules, &b->rule_capacity, b->num_rules + 1, sizeof *b->rules), "no memory");
    b->rules[b->num_rules] = (struct rule){name ? copy(name, strlen(name) + 1) : NULL, -1};
    return (int32_t)b->num_rules++;
}

grammar_node __wrap_grammar_reference(struct grammar_builder *b, int32_t rule)
{
    require(rule >= 0 && (size_t)rule < b->num_rules, "a rule that there is not");
    return add(b, (struct node){.kind = REFERENCE, .rule = rule});
}

void __wrap_grammar_define(struct grammar_builder *b, int32_t rule, grammar_node node)
{
    require(b->rules[rule].node < 0, "a rule is defined twice");
    require(node >= 0 && (size_t)node < b->num_nodes, "a rule's node is none");
    b->rules[rule].node = node;
}

bool __wrap_grammar_is_defined(const struct grammar_builder *b, int32_t rule)
{
    return b->rules[rule].node >= 0;
}

static int64_t plus(int64_t a, int64_t b)
{
    return a == NO_TEXT || b == NO_TEXT || a > (INT64_C(1) << 40) || b > (INT64_C(1) << 40) ? NO_TEXT : a + b;
}

static int64_t shortest(const struct grammar_builder *b, const struct node *n)
{
    int64_t sum = n->kind == CHOICE ? NO_TEXT : 1;
    switch (n->kind) {
    case BYTES:
        return 1 + (int64_t)n->length;
    case CHARACTERS:
        return n->count > 0 ? 2 : NO_TEXT;
    case AUTOMATON:
        return n->distance[0] < 0 ? NO_TEXT : n->distance[0] + 1;
    case REFERENCE:
        return plus(1, b->rules[n->rule].node < 0 ? NO_TEXT : b->nodes[b->rules[n->rule].node].shortest);
    case REPEAT:
        sum = b->nodes[n->parts[0]].shortest;
        return n->least == 0 ? 1 : sum == NO_TEXT ? NO_TEXT : 1 + sum * n->least;
    default:
        break;
    }
    for (int32_t i = 0; i < n->count; i++) {
        const int64_t part = b->nodes[n->parts[i]].shortest;
        if (n->kind == SEQUENCE)
            sum = plus(sum, part);
        else if (part < sum)
            sum = part;
    }
    return n->kind == CHOICE ? plus(sum, 1) : sum;
}

enum status __wrap_grammar_build(struct grammar_builder *b, int32_t root, struct grammar **out, struct error *err)
{
    *out = NULL;
    for (size_t i = 0; i < b->num_rules; i++)
        if (b->rules[i].node < 0)
            return error_set(err, STATUS_INVALID, "the rule %s is not defined",
                             b->rules[i].name ? b->rules[i].name : "without a name");
    for (size_t i = 0; i < b->num_nodes; i++) b->nodes[i].shortest = NO_TEXT;
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t i = 0; i < b->num_nodes; i++) {
            const int64_t found = shortest(b, &b->nodes[i]);
            changed |= found < b->nodes[i].shortest;
            if (found < b->nodes[i].shortest) b->nodes[i].shortest = found;
        }
    }
    if (b->nodes[b->rules[root].node].shortest == NO_TEXT)
        return error_set(err, STATUS_INVALID, "the grammar has no text");
    struct grammar *g = copy(&(struct grammar){.b = copy(b, sizeof *b), .root = root, .references = 1}, sizeof *g);
    *b = (struct grammar_builder){0};
    *out = g;
    return STATUS_OK;
}

struct grammar *__wrap_grammar_keep(struct grammar *g)
{
    g->references++;
    return g;
}

void __wrap_grammar_free(struct grammar *g)
{
    if (!g || --g->references > 0) return;
    clear(g->b);
    free(g->b);
    free(g);
}

size_t plain_grammar_size(const struct grammar *g)
{
    size_t size = g->b->num_nodes;
    for (size_t i = 0; i < g->b->num_nodes; i++)
        if (g->b->nodes[i].kind == AUTOMATON) size += (size_t)g->b->nodes[i].count;
    return size;
}

/* A text that is looked at. ends[node * (length + 1) + from] [length + 1]: where texts of the node may end that begin
 * at `from`; NULL: not looked at yet. */
struct search {
    const struct grammar_builder *b;
    const char *text;
    size_t length;
    uint8_t **ends;
};

static const uint8_t in_search[1]; /* stands for ends that are being found */

static const uint8_t *find_ends(struct search *s, grammar_node node, size_t from);

static uint8_t *new_ends(const struct search *s)
{
    uint8_t *ends = calloc(s->length + 1, 1);
    require(ends != NULL, "no memory");
    return ends;
}

/* Where texts of the part may end that begin where `starts` says; frees `starts`. */
static uint8_t *advance(struct search *s, grammar_node part, uint8_t *starts)
{
    uint8_t *all = new_ends(s);
    for (size_t i = 0; i <= s->length; i++) {
        if (!starts[i]) continue;
        const uint8_t *ends = find_ends(s, part, i);
        for (size_t k = i; k <= s->length; k++) all[k] |= ends[k];
    }
    free(starts);
    return all;
}

static void repeat_ends(struct search *s, const struct node *n, size_t from, uint8_t *out)
{
    uint8_t *now = new_ends(s);
    now[from] = 1;
    for (int32_t i = 0; n->most < 0 || i <= n->most; i++) {
        bool any = false, added = false;
        for (size_t k = 0; k <= s->length; k++) {
            any |= now[k];
            if (i < n->least || !now[k] || out[k]) continue;
            out[k] = 1;
            added = true;
        }
        if (!any || (i >= n->least && !added)) break; /* what adds no end now will add none later */
        now = advance(s, n->parts[0], now);
    }
    free(now);
}

static void own_ends(struct search *s, const struct node *n, size_t from, uint8_t *out)
{
    const char *text = s->text + from;
    const size_t left = s->length - from;
    uint32_t c;
    uint8_t *now;
    switch (n->kind) {
    case BYTES:
        if (n->length <= left && memcmp(text, n->bytes, n->length) == 0) out[from + n->length] = 1;
        break;
    case CHARACTERS:
        if (left == 0 || utf8_length(text, left) <= 0) break;
        utf8_decode(text, left, &c);
        for (int32_t i = 0; i < n->count; i++)
            if (c >= n->ranges[i].first && c <= n->ranges[i].last) out[from + (size_t)utf8_length(text, left)] = 1;
        break;
    case SEQUENCE:
        now = new_ends(s);
        now[from] = 1;
        for (int32_t i = 0; i < n->count; i++) now = advance(s, n->parts[i], now);
        memcpy(out, now, s->length + 1);
        free(now);
        break;
    case CHOICE:
        for (int32_t i = 0; i < n->count; i++) {
            const uint8_t *ends = find_ends(s, n->parts[i], from);
            for (size_t k = 0; k <= s->length; k++) out[k] |= ends[k];
        }
        break;
    case REPEAT:
        repeat_ends(s, n, from, out);
        break;
    case AUTOMATON:
        for (int32_t state = 0, i = 0;; i++) {
            if (n->ends[state]) out[from + (size_t)i] = 1;
            if ((size_t)i == left) break;
            state = n->next[state * 256 + (unsigned char)text[i]];
            if (state < 0) break;
        }
        break;
    case REFERENCE:
        memcpy(out, find_ends(s, s->b->rules[n->rule].node, from), s->length + 1);
        break;
    }
}

static const uint8_t *find_ends(struct search *s, grammar_node node, size_t from)
{
    uint8_t **place = &s->ends[(size_t)node * (s->length + 1) + from];
    require(*place != in_search, "a rule is recursive on the left");
    if (*place) return *place;
    *place = (uint8_t *)in_search;
    uint8_t *out = new_ends(s);
    own_ends(s, &s->b->nodes[node], from, out);
    return *place = out;
}

bool plain_grammar_matches(const struct grammar *g, const char *text, size_t length)
{
    const size_t count = g->b->num_nodes * (length + 1);
    struct search s = {g->b, text, length, calloc(count, sizeof *s.ends)};
    require(s.ends != NULL, "no memory");
    const bool matches = find_ends(&s, g->b->rules[g->root].node, 0)[length];
    for (size_t i = 0; i < count; i++) free(s.ends[i]);
    free(s.ends);
    return matches;
}

struct draw {
    const struct grammar_builder *b;
    struct random *random;
    size_t length;
    struct text *out;
};

static uint64_t draw_below(struct draw *d, uint64_t count)
{
    return random_bits(d->random) % count;
}

static void draw_node(struct draw *d, grammar_node node);

/* One of the parts that have a text; a shortest one when the text is long enough. */
static void draw_choice(struct draw *d, const struct node *n)
{
    const bool hurry = d->out->length >= d->length;
    int64_t least = NO_TEXT;
    int32_t num = 0;
    for (int32_t i = 0; i < n->count; i++)
        if (d->b->nodes[n->parts[i]].shortest < least) least = d->b->nodes[n->parts[i]].shortest;
    for (int pass = 0, chosen = 0; pass < 2; pass++) {
        if (pass == 1) chosen = (int)draw_below(d, (uint64_t)num);
        for (int32_t i = 0; i < n->count; i++) {
            const int64_t shortest_text = d->b->nodes[n->parts[i]].shortest;
            if (shortest_text == NO_TEXT || (hurry && shortest_text > least)) continue;
            if (pass == 0)
                num++;
            else if (chosen-- == 0)
                return draw_node(d, n->parts[i]);
        }
    }
}

static void draw_automaton(struct draw *d, const struct node *n)
{
    for (int32_t state = 0;;) {
        const bool hurry = d->out->length >= d->length;
        if (n->ends[state] && (hurry || draw_below(d, 6) == 0)) return;
        int num = 0;
        uint8_t bytes[256];
        for (int c = 0; c < 256; c++) {
            const int32_t to = n->next[state * 256 + c];
            if (to < 0 || n->distance[to] < 0 || (hurry && n->distance[to] >= n->distance[state])) continue;
            bytes[num++] = (uint8_t)c;
        }
        if (num == 0) return;
        const uint8_t byte = bytes[draw_below(d, (uint64_t)num)];
        require(text_append(d->out, (const char *)&byte, 1), "no memory");
        state = n->next[state * 256 + byte];
    }
}

static void draw_character(struct draw *d, const struct node *n)
{
    char bytes[4];
    for (;;) {
        const struct character_range r = n->ranges[draw_below(d, (uint64_t)n->count)];
        const uint32_t c = r.first + (uint32_t)draw_below(d, r.last - r.first + 1);
        if (c >= 0xD800 && c <= 0xDFFF) continue;
        require(text_append(d->out, bytes, utf8_write(c, bytes)), "no memory");
        return;
    }
}

static void draw_node(struct draw *d, grammar_node node)
{
    const struct node *n = &d->b->nodes[node];
    int32_t count = n->count;
    switch (n->kind) {
    case BYTES:
        require(text_append(d->out, n->bytes, n->length), "no memory");
        break;
    case CHARACTERS:
        draw_character(d, n);
        break;
    case SEQUENCE:
        for (int32_t i = 0; i < n->count; i++) draw_node(d, n->parts[i]);
        break;
    case CHOICE:
        draw_choice(d, n);
        break;
    case REPEAT:
        for (count = 0; count < n->least; count++) draw_node(d, n->parts[0]);
        for (; (n->most < 0 || count < n->most) && d->out->length < d->length && draw_below(d, 4) > 0; count++)
            if (d->b->nodes[n->parts[0]].shortest < NO_TEXT) draw_node(d, n->parts[0]);
        break;
    case AUTOMATON:
        draw_automaton(d, n);
        break;
    case REFERENCE:
        draw_node(d, d->b->rules[n->rule].node);
        break;
    }
}

void plain_grammar_draw(const struct grammar *g, struct random *random, size_t length, struct text *out)
{
    struct draw d = {g->b, random, length, out};
    text_clear(out);
    require(text_append(out, "", 0), "no memory");
    draw_node(&d, g->b->rules[g->root].node);
}
