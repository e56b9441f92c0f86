/* Hopcroft's algorithm (1971): blocks of states are split until no class of characters tells states of one block apart.
 */
#include <stdlib.h>
#include <string.h>

#include "tokenizer/grammar/regular_state.h"

/* Blocks of states: states[first[b] .. end[b] - 1] are in block b, and the first marked[b] of them are marked. */
struct partition {
    const struct regular *r;
    int32_t *states, *place, *block; /* [num_states]; states[place[s]] is s */
    int32_t *first, *end, *marked;   /* [num_states], of blocks */
    int32_t num_blocks;
    int32_t *sources, *source_start; /* by class and state: [classes, num_states], [classes * num_states + 1] */
    int32_t *work;                   /* [work_count] a stack of block * num_classes + class; at most one of each */
    size_t work_count;
    bool *in_work;    /* [num_states, num_classes] */
    int32_t *touched; /* [num_states] blocks with marks */
    int32_t *leading; /* [num_states] the states that lead to the block that is looked at */
    void *memory;     /* of all these */
};

static bool partition_new(struct partition *p, const struct regular *r)
{
    const size_t n = (size_t)r->num_states, transitions = n * (size_t)r->alphabet.num_classes;
    int32_t *at = malloc((8 * n + 3 * transitions + 1) * sizeof *at + transitions);
    if (!at) return false;
    *p = (struct partition){.r = r, .memory = at};
    int32_t **const arrays[] = {&p->states, &p->place,  &p->block,   &p->first,
                                &p->end,    &p->marked, &p->touched, &p->leading};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++, at += n) *arrays[i] = at;
    p->sources = at;
    p->work = at + transitions;
    p->source_start = at + 2 * transitions;
    p->in_work = (bool *)(at + 3 * transitions + 1);
    memset(p->in_work, 0, transitions);
    return true;
}

/* For each class and state, the states that lead to it. */
static void find_sources(struct partition *p)
{
    const int32_t n = p->r->num_states, num_classes = p->r->alphabet.num_classes;
    const size_t transitions = (size_t)n * (size_t)num_classes;
    int32_t *start = p->source_start;
    memset(start, 0, (transitions + 1) * sizeof *start);
    for (int32_t s = 0; s < n; s++)
        for (int32_t c = 0; c < num_classes; c++) start[c * n + p->r->next[s * num_classes + c]]++;
    for (size_t i = 1; i <= transitions; i++) start[i] += start[i - 1];
    for (int32_t s = n - 1; s >= 0; s--)
        for (int32_t c = 0; c < num_classes; c++) p->sources[--start[c * n + p->r->next[s * num_classes + c]]] = s;
}

static void add_work(struct partition *p, int32_t block, int32_t class)
{
    const int32_t item = block * p->r->alphabet.num_classes + class;
    if (p->in_work[item]) return;
    p->in_work[item] = true;
    p->work[p->work_count++] = item;
}

/* A block of the states from `first` on; they stand together already. */
static void add_block(struct partition *p, int32_t first, int32_t end)
{
    const int32_t b = p->num_blocks++;
    p->first[b] = first;
    p->end[b] = end;
    p->marked[b] = 0;
    for (int32_t i = first; i < end; i++) p->block[p->states[i]] = b;
}

static void begin(struct partition *p)
{
    int32_t ends = 0, others = p->r->num_states;
    for (int32_t s = 0; s < p->r->num_states; s++) {
        const int32_t place = p->r->ends[s] ? ends++ : --others;
        p->states[place] = s;
        p->place[s] = place;
    }
    if (ends > 0) add_block(p, 0, ends);
    if (ends < p->r->num_states) add_block(p, ends, p->r->num_states);
    for (int32_t c = 0; c < p->r->alphabet.num_classes; c++) add_work(p, 0, c);
}

/* Moves the state to the marked ones of its block. Returns whether it is the first. */
static bool mark(struct partition *p, int32_t state)
{
    const int32_t b = p->block[state], to = p->first[b] + p->marked[b], from = p->place[state];
    if (from < to) return false;
    const int32_t other = p->states[to];
    p->states[to] = state;
    p->place[state] = to;
    p->states[from] = other;
    p->place[other] = from;
    return p->marked[b]++ == 0;
}

/* Makes the smaller part of a block a block of its own, which is looked at for every class. What still had to be looked
 * at in the old block, has to be in both. */
static void split(struct partition *p, int32_t b)
{
    const int32_t middle = p->first[b] + p->marked[b];
    p->marked[b] = 0;
    if (middle == p->end[b]) return;
    const int32_t first = p->first[b], end = p->end[b];
    if (middle - first <= end - middle) {
        p->first[b] = middle;
        add_block(p, first, middle);
    } else {
        p->end[b] = middle;
        add_block(p, middle, end);
    }
    for (int32_t c = 0; c < p->r->alphabet.num_classes; c++) add_work(p, p->num_blocks - 1, c);
}

static void refine(struct partition *p)
{
    const int32_t n = p->r->num_states, num_classes = p->r->alphabet.num_classes;
    while (p->work_count > 0) {
        const int32_t item = p->work[--p->work_count], b = item / num_classes, c = item % num_classes;
        int32_t num_touched = 0;
        p->in_work[item] = false;
        int32_t num_leading = 0; /* all are found before a mark moves a state */
        for (int32_t i = p->first[b]; i < p->end[b]; i++) {
            const int32_t target = c * n + p->states[i];
            for (int32_t k = p->source_start[target]; k < p->source_start[target + 1]; k++)
                p->leading[num_leading++] = p->sources[k];
        }
        for (int32_t i = 0; i < num_leading; i++)
            if (mark(p, p->leading[i])) p->touched[num_touched++] = p->block[p->leading[i]];
        for (int32_t i = 0; i < num_touched; i++) split(p, p->touched[i]);
    }
}

/* Numbers the blocks in the order in which a search from the first state finds them: p->first[b] becomes the number of
 * block b, and p->states[i] a state of the block with number i. */
static void number_blocks(struct partition *p)
{
    const int32_t num_classes = p->r->alphabet.num_classes;
    int32_t num = 1;
    memset(p->first, 0xFF, sizeof *p->first * (size_t)p->num_blocks);
    p->first[p->block[0]] = 0;
    p->states[0] = 0;
    for (int32_t i = 0; i < num; i++) {
        for (int32_t c = 0; c < num_classes; c++) {
            const int32_t to = p->r->next[p->states[i] * num_classes + c];
            if (p->first[p->block[to]] >= 0) continue;
            p->first[p->block[to]] = num;
            p->states[num++] = to;
        }
    }
    p->num_blocks = num; /* without those that cannot be reached */
}

/* The automaton of the numbered blocks. */
static struct regular *quotient(const struct partition *p)
{
    const int32_t num_classes = p->r->alphabet.num_classes;
    struct alphabet alphabet;
    if (!alphabet_copy(&alphabet, &p->r->alphabet)) return NULL;
    struct regular *r = regular_new(p->num_blocks, &alphabet);
    for (int32_t i = 0; r && i < p->num_blocks; i++) {
        const int32_t *next = p->r->next + p->states[i] * num_classes;
        for (int32_t c = 0; c < num_classes; c++) r->next[i * num_classes + c] = p->first[p->block[next[c]]];
        r->ends[i] = p->r->ends[p->states[i]];
    }
    return r;
}

static uint64_t column_hash(const struct regular *r, int32_t class)
{
    uint64_t hash = 0;
    for (int32_t s = 0; s < r->num_states; s++)
        hash = (hash ^ (uint32_t)r->next[s * r->alphabet.num_classes + class]) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ hash >> 32;
}

static bool same_column(const struct regular *r, int32_t a, int32_t b)
{
    for (int32_t s = 0; s < r->num_states; s++)
        if (r->next[s * r->alphabet.num_classes + a] != r->next[s * r->alphabet.num_classes + b]) return false;
    return true;
}

/* Leaves the columns kept[0 .. num - 1] of the table, in this order. */
static bool keep_columns(struct regular *r, const int32_t *kept, int32_t num)
{
    int32_t *next = malloc(sizeof *next * (size_t)r->num_states * (size_t)num);
    if (!next) return false;
    for (int32_t s = 0; s < r->num_states; s++)
        for (int32_t c = 0; c < num; c++) next[s * num + c] = r->next[s * r->alphabet.num_classes + kept[c]];
    free(r->next);
    r->next = next;
    return true;
}

/* Makes one class of those with equal transitions. They are numbered in the order of their first symbols. */
static bool merge_classes(struct regular *r)
{
    const int32_t old = r->alphabet.num_classes;
    size_t table_size = 2;
    while (table_size < 2 * (size_t)old) table_size *= 2;
    int32_t *map = malloc(2 * (size_t)old * sizeof *map), *table = malloc(table_size * sizeof *table);
    int32_t *kept = map ? map + old : NULL, num = 0; /* an old class of each new one */
    bool merged = false;
    if (map && table) {
        memset(table, 0xFF, table_size * sizeof *table);
        memset(map, 0xFF, (size_t)old * sizeof *map);
        for (int32_t i = 0; i < r->alphabet.num_intervals; i++) {
            const int32_t c = r->alphabet.class_of[i];
            if (map[c] >= 0) continue;
            size_t slot = column_hash(r, c) & (table_size - 1);
            while (table[slot] >= 0 && !same_column(r, c, kept[table[slot]])) slot = (slot + 1) & (table_size - 1);
            if (table[slot] < 0) {
                kept[num] = c;
                table[slot] = num++;
            }
            map[c] = table[slot];
        }
        merged = keep_columns(r, kept, num);
        if (merged) alphabet_map(&r->alphabet, map, num);
    }
    free(map);
    free(table);
    return merged;
}

struct regular *regular_minimize(struct regular *r)
{
    struct partition p;
    struct regular *out = NULL;
    if (r && partition_new(&p, r)) {
        find_sources(&p);
        begin(&p);
        refine(&p);
        number_blocks(&p);
        out = quotient(&p);
        free(p.memory);
    }
    regular_free(r);
    if (!out || merge_classes(out)) return out;
    regular_free(out);
    return NULL;
}
