#include "tokenizer/grammar/nfa.h"

#include <stdlib.h>

#include "base/array.h"

enum { MAX_STATES = 1 << 24 };

int32_t nfa_state(struct nfa *n)
{
    if (n->num_states >= MAX_STATES ||
        !array_reserve(&n->edges_of, &n->state_capacity, n->num_states + 1, sizeof *n->edges_of)) {
        n->failed = true;
        return 0;
    }
    n->edges_of[n->num_states] = -1;
    return (int32_t)n->num_states++;
}

void nfa_begin(struct nfa *n)
{
    n->num_states = n->num_edges = 0;
    n->start = nfa_state(n);
    n->end = nfa_state(n);
}

void nfa_free(struct nfa *n)
{
    free(n->edges_of);
    free(n->edges);
    *n = (struct nfa){0};
}

static void add_edge(struct nfa *n, int32_t from, struct nfa_edge edge)
{
    if (n->failed || n->num_edges >= MAX_STATES ||
        !array_reserve(&n->edges, &n->edge_capacity, n->num_edges + 1, sizeof *n->edges)) {
        n->failed = true;
        return;
    }
    edge.next = n->edges_of[from];
    n->edges_of[from] = (int32_t)n->num_edges;
    n->edges[n->num_edges++] = edge;
}

void nfa_add_empty(struct nfa *n, int32_t from, int32_t to)
{
    add_edge(n, from, (struct nfa_edge){.target = to, .unit = NFA_EMPTY});
}

void nfa_add_bytes(struct nfa *n, int32_t from, int32_t to, uint8_t first, uint8_t last)
{
    add_edge(n, from, (struct nfa_edge){.target = to, .unit = NFA_BYTES, .first = first, .last = last});
}

void nfa_add_call(struct nfa *n, int32_t from, int32_t to, int32_t unit, int32_t least, int32_t most)
{
    add_edge(n, from, (struct nfa_edge){.target = to, .unit = unit, .least = least, .most = most});
}

/* ---- UTF-8 ---- */

static int utf8_write(uint32_t c, uint8_t bytes[4])
{
    static const uint8_t leads[] = {0, 0, 0xC0, 0xE0, 0xF0};
    const int length = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (int i = length - 1; i > 0; i--, c >>= 6) bytes[i] = (uint8_t)(0x80 | (c & 0x3F));
    bytes[0] = (uint8_t)(leads[length] | c);
    return length;
}

/* Characters whose bytes vary independently of each other: each from first[i] to last[i]. */
static void add_block(struct nfa *n, int32_t from, int32_t to, const uint8_t *first, const uint8_t *last, int length)
{
    for (int i = 0; i < length; i++) {
        const int32_t next = i == length - 1 ? to : nfa_state(n);
        nfa_add_bytes(n, from, next, first[i], last[i]);
        from = next;
    }
}

/* The last character of the largest block that begins with `first`: one length, and below the byte where it differs
 * from `first` all continuations. */
static uint32_t block_end(uint32_t first, uint32_t last)
{
    static const uint32_t lengths_end[] = {0x7F, 0x7FF, 0xFFFF, 0x10FFFF};
    int i = 0;
    while (first > lengths_end[i]) i++;
    if (last > lengths_end[i]) last = lengths_end[i];
    for (int shift = 6 * i; shift > 0; shift -= 6) {
        const uint32_t low = (1u << shift) - 1;
        if (first >> shift == last >> shift) continue;              /* the same bytes up to here */
        if ((first & low) == 0 && (last & low) == low) return last; /* whole */
        if ((first & low) == 0) return ((last >> shift) << shift) - 1;
        last = first | low;
    }
    return last;
}

void nfa_add_characters(struct nfa *n, int32_t from, int32_t to, struct character_range range)
{
    for (uint32_t c = range.first; c <= range.last;) {
        const uint32_t end = block_end(c, range.last);
        uint8_t first[4], last[4];
        const int length = utf8_write(c, first);
        utf8_write(end, last);
        add_block(n, from, to, first, last, length);
        c = end + 1;
    }
}

/* ---- automata ---- */

void automaton_free(struct automaton *a)
{
    free(a->states);
    free(a->edges);
    free(a->calls);
    *a = (struct automaton){0};
}

bool automaton_add_state(struct automaton *a, bool ends)
{
    if (!array_reserve(&a->states, &a->state_capacity, a->num_states + 2, sizeof *a->states)) return false;
    a->states[a->num_states++] = (struct automaton_state){(int32_t)a->num_edges, (int32_t)a->num_calls, ends};
    a->states[a->num_states] = a->states[a->num_states - 1];
    return true;
}

/* The state behind the last one ends its edges and calls. */
static void close_state(struct automaton *a)
{
    a->states[a->num_states] = (struct automaton_state){(int32_t)a->num_edges, (int32_t)a->num_calls, false};
}

bool automaton_add_edge(struct automaton *a, uint8_t first, uint8_t last, int32_t target)
{
    if (!array_reserve(&a->edges, &a->edge_capacity, a->num_edges + 1, sizeof *a->edges)) return false;
    a->edges[a->num_edges++] = (struct automaton_edge){first, last, target};
    close_state(a);
    return true;
}

bool automaton_add_call(struct automaton *a, struct automaton_call call)
{
    if (!array_reserve(&a->calls, &a->call_capacity, a->num_calls + 1, sizeof *a->calls)) return false;
    a->calls[a->num_calls++] = call;
    close_state(a);
    return true;
}
