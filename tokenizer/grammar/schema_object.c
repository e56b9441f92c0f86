/* Objects: the properties that the schema names, in its order, and then others.
 *
 * What may follow depends on the next property and on how many were written, so there is a state for each pair of them.
 * Of the counts only those matter that a bound can tell apart, and whether one property was written, which has no comma
 * before it. A state that several others lead to is a rule: so optional properties do not multiply. */
#include <stdlib.h>

#include "tokenizer/grammar/schema_members.h"

enum { MAX_STATES = 1 << 18 };

struct states {
    struct schema_compiler *c;
    const struct conjunction *j;
    const struct schema_members *m;
    int64_t least, most; /* of the number of properties; most -1: any number */
    size_t num_counts;   /* counts 0 .. num_counts - 1 are told apart; the last means "or more" unless most says no */
    grammar_node *nodes; /* [m->count + 1, num_counts] */
    uint8_t *uses;       /* of each state: 0, 1 or 2 for more */
};

static size_t state_of(const struct states *s, size_t property, size_t count)
{
    return property * s->num_counts + (count < s->num_counts ? count : s->num_counts - 1);
}

static bool may_write(const struct states *s, size_t count)
{
    return s->most < 0 || (int64_t)count < s->most;
}

static void use(struct states *s, size_t state)
{
    if (s->uses[state] < 2) s->uses[state]++;
}

/* Which states are reached, and whether from several. */
static void count_uses(struct states *s)
{
    use(s, state_of(s, 0, 0));
    for (size_t i = 0; i < s->m->count; i++) {
        for (size_t k = 0; k < s->num_counts; k++) {
            if (s->uses[state_of(s, i, k)] == 0) continue;
            const bool skips = !s->m->properties[i].required, writes = may_write(s, k);
            const bool same = state_of(s, i + 1, k + 1) == state_of(s, i + 1, k);
            if (skips) use(s, state_of(s, i + 1, k));
            if (writes && !(skips && same)) use(s, state_of(s, i + 1, k + 1));
        }
    }
}

/* The other properties, behind `count` that were written. */
static grammar_node others_node(const struct states *s, size_t count)
{
    const struct json_nodes *n = &s->c->nodes;
    const int64_t written = (int64_t)count, least = s->least > written ? s->least - written : 0;
    if (!s->m->has_others || (s->most >= 0 && s->most <= written))
        return least > 0 ? grammar_never(n->b) : grammar_empty(n->b);
    const int64_t most = s->most < 0 ? -1 : s->most - written;
    const grammar_node next = grammar_sequence(n->b, (grammar_node[]){n->comma, s->m->others}, 2);
    if (written > 0) return schema_repeat(s->c, s->j, next, least, most);
    const grammar_node rest = schema_repeat(s->c, s->j, next, least > 0 ? least - 1 : 0, most < 0 ? -1 : most - 1);
    const grammar_node list = grammar_sequence(n->b, (grammar_node[]){s->m->others, rest}, 2);
    return least > 0 ? list : json_optional_node(n, list);
}

/* From property i on, behind `count` that were written. */
static grammar_node property_node(const struct states *s, size_t i, size_t count)
{
    const struct json_nodes *n = &s->c->nodes;
    const struct schema_property *p = &s->m->properties[i];
    const size_t skipped = state_of(s, i + 1, count), written = state_of(s, i + 1, count + 1);
    const grammar_node comma = count == 0 ? grammar_empty(n->b) : n->comma;
    const grammar_node member = grammar_sequence(n->b, (grammar_node[]){comma, p->member}, 2);
    if (!may_write(s, count)) return p->required ? grammar_never(n->b) : s->nodes[skipped];
    if (!p->required && skipped == written)
        return grammar_sequence(n->b, (grammar_node[]){json_optional_node(n, member), s->nodes[skipped]}, 2);
    const grammar_node taken = grammar_sequence(n->b, (grammar_node[]){member, s->nodes[written]}, 2);
    return p->required ? taken : grammar_choice(n->b, (grammar_node[]){taken, s->nodes[skipped]}, 2);
}

static void make_states(struct states *s)
{
    struct grammar_builder *b = s->c->nodes.b;
    for (size_t i = s->m->count + 1; i-- > 0 && !s->c->status;) {
        for (size_t k = 0; k < s->num_counts; k++) {
            const size_t state = state_of(s, i, k);
            if (s->uses[state] == 0) continue;
            s->nodes[state] = i == s->m->count ? others_node(s, k) : property_node(s, i, k);
            if (s->uses[state] == 1) continue;
            const int32_t rule = grammar_rule(b, NULL);
            grammar_define(b, rule, s->nodes[state]);
            s->nodes[state] = grammar_reference(b, rule);
        }
    }
}

/* Beyond these counts no bound tells one from another: those of the least, or of all that can be written. */
static size_t find_num_counts(const struct states *s)
{
    const int64_t named = (int64_t)s->m->count;
    const int64_t counted = s->most < 0 || (s->most >= named && !s->m->has_others) ? s->least : s->most;
    return 1 + (size_t)(counted < 1 ? 1 : counted > named ? named + (named == 0) : counted);
}

grammar_node schema_object_node(struct schema_compiler *c, const struct conjunction *j)
{
    const struct schema_members m = schema_find_members(c, j);
    struct states s = {.c = c, .j = j, .m = &m};
    conjunction_counts(j, "minProperties", "maxProperties", &s.least, &s.most);
    if (c->status || m.never || (s.most >= 0 && s.most < s.least)) return grammar_never(c->nodes.b);
    s.num_counts = find_num_counts(&s);
    const size_t num_states = (m.count + 1) * s.num_counts;
    if (num_states > MAX_STATES) {
        schema_fail(c, STATUS_UNSUPPORTED, "%s: so many properties with bounds of their number are too many for quire",
                    j->members[0].schema->path);
        return grammar_never(c->nodes.b);
    }
    s.nodes = schema_alloc(c, num_states * sizeof *s.nodes);
    s.uses = schema_alloc(c, num_states);
    if (c->status) return grammar_never(c->nodes.b);
    count_uses(&s);
    make_states(&s);
    return json_brackets_node(&c->nodes, "{}", c->status ? grammar_never(c->nodes.b) : s.nodes[0]);
}
