#include <stdlib.h>

#include "tokenizer/grammar/compile.h"
#include "tokenizer/grammar/grammar_state.h"
#include "tokenizer/grammar/left_recursion.h"

/* The automaton of each unit. */
static enum status make_automata(const struct grammar_builder *b, const struct units *u, struct automaton *automata,
                                 struct error *err)
{
    struct nfa nfa = {0};
    enum status status = STATUS_OK;
    for (int32_t i = 0; i < u->count && !status; i++) {
        compile_unit(b, u, i, &nfa);
        status = nfa_determinize(&nfa, &automata[i], err);
        if (!status) status = automaton_trim(&automata[i], err);
    }
    nfa_free(&nfa);
    return status;
}

/* Appends an automaton to all. */
static bool append(struct automaton *all, const struct automaton *a)
{
    const int32_t offset = (int32_t)all->num_states;
    bool fits = true;
    for (size_t s = 0; s < a->num_states && fits; s++) {
        fits = automaton_add_state(all, a->states[s].ends);
        for (int32_t e = a->states[s].first_edge; e < a->states[s + 1].first_edge && fits; e++)
            fits = automaton_add_edge(all, a->edges[e].first, a->edges[e].last, offset + a->edges[e].target);
        for (int32_t i = a->states[s].first_call; i < a->states[s + 1].first_call && fits; i++) {
            struct automaton_call call = a->calls[i];
            call.target += offset;
            fits = automaton_add_call(all, call);
        }
    }
    return fits;
}

static void classify_bytes(struct grammar *g)
{
    bool cuts[257] = {false}; /* a class begins here */
    for (size_t e = 0; e < g->automaton.num_edges; e++)
        cuts[g->automaton.edges[e].first] = cuts[g->automaton.edges[e].last + 1] = true;
    int32_t class = 0;
    for (int c = 0; c < 256; c++) {
        if (c > 0 && cuts[c]) class ++;
        g->byte_classes[c] = (uint8_t) class;
    }
    g->num_byte_classes = class + 1;
}

static bool find_last_bytes(struct grammar *g)
{
    const struct automaton *a = &g->automaton;
    g->last_bytes = calloc(a->num_states + 1, sizeof *g->last_bytes);
    for (size_t s = 0; g->last_bytes && s < a->num_states; s++)
        for (int32_t e = a->states[s].first_edge; e < a->states[s + 1].first_edge; e++)
            if (a->edges[e].last > g->last_bytes[s]) g->last_bytes[s] = a->edges[e].last;
    return g->last_bytes != NULL;
}

/* Puts the automata together. */
static bool join(struct grammar *g, const struct automaton *automata, const int32_t *ranks)
{
    for (int32_t i = 0; i < g->num_units; i++) {
        g->units[i] = (struct grammar_unit){(int32_t)g->automaton.num_states, ranks[i]};
        if (!append(&g->automaton, &automata[i])) return false;
    }
    classify_bytes(g);
    return find_last_bytes(g);
}

static enum status make_grammar(const struct grammar_builder *b, const struct units *u, struct grammar *g,
                                struct error *err)
{
    struct automaton *automata = calloc((size_t)u->count, sizeof *automata);
    int32_t *ranks = malloc((size_t)u->count * sizeof *ranks);
    g->units = malloc((size_t)u->count * sizeof *g->units);
    g->num_units = u->count;
    g->has_empty = u->is_nullable[u->nodes[0]];
    enum status status = STATUS_OK;
    if (!automata || !ranks || !g->units) status = error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for a grammar");
    if (!status) status = make_automata(b, u, automata, err);
    if (!status) status = left_recursion_remove(automata, u->count, ranks, err);
    if (!status && !join(g, automata, ranks))
        status = error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for a grammar");
    for (int32_t i = 0; automata && i < u->count; i++) automaton_free(&automata[i]);
    free(automata);
    free(ranks);
    return status;
}

enum status grammar_build(struct grammar_builder *b, int32_t root, struct grammar **out, struct error *err)
{
    *out = NULL;
    if (b->out_of_memory) return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for a grammar");
    if (b->too_large) return error_set(err, STATUS_UNSUPPORTED, "the grammar is too large");
    if (!b->rules[root].is_defined) {
        const char *name = b->rules[root].name;
        return error_set(err, STATUS_INVALID, "rule %s is not defined", name ? name : "without a name");
    }
    struct grammar *g = calloc(1, sizeof *g);
    if (!g) return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for a grammar");
    g->references = 1;
    struct units u;
    enum status status = units_find(b, b->rules[root].node, &u, err);
    if (!status) status = make_grammar(b, &u, g, err);
    units_free(&u);
    if (status)
        grammar_free(g);
    else
        *out = g;
    return status;
}

struct grammar *grammar_keep(struct grammar *g)
{
    atomic_fetch_add(&g->references, 1);
    return g;
}

void grammar_free(struct grammar *g)
{
    if (!g || atomic_fetch_sub(&g->references, 1) > 1) return;
    automaton_free(&g->automaton);
    free(g->units);
    free(g->last_bytes);
    free(g);
}
