#include <stdlib.h>

#include "base/array.h"
#include "tokenizer/grammar/nfa.h"

/* The edges and calls of an automaton by their targets. */
struct reversed {
    int32_t *first;   /* [num_states + 1] */
    int32_t *sources; /* [num_edges + num_calls] */
};

static bool reverse(const struct automaton *a, struct reversed *r)
{
    r->first = calloc(a->num_states + 2, sizeof *r->first);
    r->sources = malloc((a->num_edges + a->num_calls + 1) * sizeof *r->sources);
    if (!r->first || !r->sources) return false;
    int32_t *end = r->first + 1; /* while sources are filled in: where the next one of a state goes */
    for (size_t i = 0; i < a->num_edges; i++) end[a->edges[i].target + 1]++;
    for (size_t i = 0; i < a->num_calls; i++) end[a->calls[i].target + 1]++;
    for (size_t s = 0; s < a->num_states; s++) end[s + 1] += end[s];
    for (size_t s = 0; s < a->num_states; s++) {
        for (int32_t e = a->states[s].first_edge; e < a->states[s + 1].first_edge; e++)
            r->sources[end[a->edges[e].target]++] = (int32_t)s;
        for (int32_t c = a->states[s].first_call; c < a->states[s + 1].first_call; c++)
            r->sources[end[a->calls[c].target]++] = (int32_t)s;
    }
    return true;
}

/* Numbers the states that reach an end, and the start, in their order; the others get -1. Returns how many they are. */
static int32_t number_states(const struct automaton *a, const struct reversed *r, int32_t *numbers, int32_t *stack)
{
    size_t depth = 0;
    for (size_t s = 0; s < a->num_states; s++) {
        numbers[s] = a->states[s].ends ? 0 : -1;
        if (a->states[s].ends) stack[depth++] = (int32_t)s;
    }
    while (depth > 0) {
        const int32_t s = stack[--depth];
        for (int32_t i = r->first[s]; i < r->first[s + 1]; i++) {
            const int32_t source = r->sources[i];
            if (numbers[source] == 0) continue;
            numbers[source] = 0;
            stack[depth++] = source;
        }
    }
    numbers[0] = 0;
    int32_t count = 0;
    for (size_t s = 0; s < a->num_states; s++)
        if (numbers[s] == 0) numbers[s] = count++;
    return count;
}

/* Moves what stays to the front. */
static void compact(struct automaton *a, const int32_t *numbers)
{
    size_t num_edges = 0, num_calls = 0;
    int32_t first_edge = 0, first_call = 0;
    for (size_t s = 0; s < a->num_states; s++) {
        const int32_t end_edge = a->states[s + 1].first_edge, end_call = a->states[s + 1].first_call;
        if (numbers[s] >= 0)
            a->states[numbers[s]] = (struct automaton_state){(int32_t)num_edges, (int32_t)num_calls, a->states[s].ends};
        for (; first_edge < end_edge; first_edge++) {
            struct automaton_edge edge = a->edges[first_edge];
            edge.target = numbers[edge.target];
            if (numbers[s] >= 0 && edge.target >= 0) a->edges[num_edges++] = edge;
        }
        for (; first_call < end_call; first_call++) {
            struct automaton_call call = a->calls[first_call];
            call.target = numbers[call.target];
            if (numbers[s] >= 0 && call.target >= 0) a->calls[num_calls++] = call;
        }
    }
    a->num_edges = num_edges;
    a->num_calls = num_calls;
}

enum status automaton_trim(struct automaton *a, struct error *err)
{
    struct reversed r = {0};
    int32_t *numbers = malloc(a->num_states * sizeof *numbers);
    int32_t *stack = malloc(a->num_states * sizeof *stack);
    const bool fits = numbers && stack && reverse(a, &r);
    if (fits) {
        const int32_t count = number_states(a, &r, numbers, stack);
        compact(a, numbers);
        a->num_states = (size_t)count;
        a->states[count] = (struct automaton_state){(int32_t)a->num_edges, (int32_t)a->num_calls, false};
    }
    free(r.first);
    free(r.sources);
    free(numbers);
    free(stack);
    return fits ? STATUS_OK : error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for a grammar");
}
