#include "tokenizer/grammar/regular.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/utf8.h"
#include "tokenizer/grammar/regular_state.h"

struct regular *regular_new(int32_t num_states, struct alphabet *alphabet)
{
    const size_t transitions = (size_t)num_states * (size_t)alphabet->num_classes;
    struct regular *r = NULL;
    if (num_states <= REGULAR_MAX_STATES && transitions <= REGULAR_MAX_TRANSITIONS) r = calloc(1, sizeof *r);
    if (!r) {
        alphabet_free(alphabet);
        return NULL;
    }
    r->alphabet = *alphabet;
    r->num_states = num_states;
    r->next = calloc(transitions, sizeof *r->next);
    r->ends = calloc((size_t)num_states, sizeof *r->ends);
    *alphabet = (struct alphabet){0};
    if (r->next && r->ends) return r;
    regular_free(r);
    return NULL;
}

void regular_free(struct regular *r)
{
    if (!r) return;
    alphabet_free(&r->alphabet);
    free(r->next);
    free(r->ends);
    free(r);
}

/* States 0 .. most count characters, and the last state takes all that are too many. */
struct regular *regular_any(int64_t least, int64_t most)
{
    const int64_t counted = most < 0 ? least : most;
    struct alphabet alphabet;
    if (counted > REGULAR_MAX_STATES - 2 || !alphabet_of_sets(&alphabet, NULL, 0)) return NULL;
    const int32_t num_states = (int32_t)counted + (most < 0 ? 1 : 2);
    struct regular *r = regular_new(num_states, &alphabet);
    for (int32_t s = 0; r && s < num_states; s++) {
        r->next[s] = s + 1 < num_states ? s + 1 : s;
        r->ends[s] = s >= least && (most < 0 || s <= most);
    }
    return regular_minimize(r);
}

/* The alphabet that tells all characters of the texts apart. */
static bool alphabet_of_texts(struct alphabet *out, const struct regular_text *texts, int32_t count)
{
    struct character_set all = {0}, *sets = NULL;
    for (int32_t i = 0; i < count; i++) {
        for (size_t at = 0; at < texts[i].length;) {
            const uint32_t c = utf8_next(texts[i].bytes + at, &at);
            character_set_add(&all, c, c);
        }
    }
    character_set_sort(&all);
    size_t num_sets = 0;
    for (size_t i = 0; i < all.count; i++) num_sets += all.ranges[i].last - all.ranges[i].first + 1;
    if (!all.failed) sets = calloc(num_sets + 1, sizeof *sets);
    bool made = sets != NULL;
    num_sets = 0;
    for (size_t i = 0; sets && i < all.count; i++) {
        for (uint32_t symbol = all.ranges[i].first; symbol <= all.ranges[i].last; symbol++) {
            const uint32_t c = symbol_character(symbol);
            character_set_add(&sets[num_sets], c, c);
            if (sets[num_sets++].failed) made = false;
        }
    }
    made = made && alphabet_of_sets(out, sets, num_sets);
    for (size_t i = 0; i < num_sets; i++) character_set_free(&sets[i]);
    free(sets);
    character_set_free(&all);
    return made;
}

/* A tree of the texts' beginnings. State 1 is that of all texts that do not lead to one of them. */
struct regular *regular_texts(const struct regular_text *texts, int32_t count)
{
    struct alphabet alphabet;
    size_t num_states = 2;
    for (int32_t i = 0; i < count; i++) {
        if (utf8_valid_prefix(texts[i].bytes, texts[i].length) < texts[i].length) return NULL;
        num_states += texts[i].length;
    }
    if (num_states > REGULAR_MAX_STATES || !alphabet_of_texts(&alphabet, texts, count)) return NULL;
    struct regular *r = regular_new((int32_t)num_states, &alphabet);
    if (!r) return NULL;
    const size_t num_classes = (size_t)r->alphabet.num_classes;
    for (size_t i = 0; i < num_states * num_classes; i++) r->next[i] = 1;
    r->num_states = 2;
    for (int32_t i = 0; i < count; i++) {
        int32_t state = 0;
        for (size_t at = 0; at < texts[i].length;) {
            const uint32_t symbol = symbol_of(utf8_next(texts[i].bytes + at, &at));
            int32_t *next = &r->next[(size_t)state * num_classes + (size_t)alphabet_class(&r->alphabet, symbol)];
            if (*next == 1) *next = r->num_states++;
            state = *next;
        }
        r->ends[state] = true;
    }
    return regular_minimize(r);
}

struct regular *regular_complement(const struct regular *a)
{
    struct alphabet alphabet;
    if (!a || !alphabet_copy(&alphabet, &a->alphabet)) return NULL;
    struct regular *r = regular_new(a->num_states, &alphabet);
    if (!r) return NULL;
    memcpy(r->next, a->next, sizeof *r->next * (size_t)a->num_states * (size_t)a->alphabet.num_classes);
    for (int32_t s = 0; s < a->num_states; s++) r->ends[s] = !a->ends[s];
    return r;
}

/* The product of two automata while it is made: its states are pairs of states. */
struct product {
    const struct regular *a, *b;
    int32_t *a_class, *b_class; /* of the joined alphabet's classes */
    int32_t num_classes;
    struct pair {
        int32_t a, b;
    } * pairs; /* [num_pairs] */
    size_t num_pairs, pair_capacity;
    int32_t *next; /* [num_pairs, num_classes] */
    size_t next_capacity;
    int32_t *table; /* [table_size] numbers of pairs by their hash, -1: none */
    size_t table_size;
};

static size_t pair_slot(const struct product *p, struct pair pair)
{
    size_t slot = ((uint64_t)(uint32_t)pair.a << 32 | (uint32_t)pair.b) * UINT64_C(0x9E3779B97F4A7C15) >> 32;
    for (slot &= p->table_size - 1; p->table[slot] >= 0; slot = (slot + 1) & (p->table_size - 1)) {
        const struct pair *found = &p->pairs[p->table[slot]];
        if (found->a == pair.a && found->b == pair.b) break;
    }
    return slot;
}

static bool grow_table(struct product *p)
{
    if (p->num_pairs * 2 < p->table_size) return true;
    const size_t size = p->table_size ? 2 * p->table_size : 256;
    int32_t *table = malloc(size * sizeof *table);
    if (!table) return false;
    memset(table, 0xFF, size * sizeof *table);
    free(p->table);
    p->table = table;
    p->table_size = size;
    for (size_t i = 0; i < p->num_pairs; i++) table[pair_slot(p, p->pairs[i])] = (int32_t)i;
    return true;
}

/* The number of the pair; -1: memory ran out, or there are too many. */
static int32_t find_pair(struct product *p, struct pair pair)
{
    if (!grow_table(p)) return -1;
    int32_t *found = &p->table[pair_slot(p, pair)];
    if (*found >= 0) return *found;
    const size_t num = p->num_pairs + 1;
    if (num > REGULAR_MAX_STATES || num * (size_t)p->num_classes > REGULAR_MAX_TRANSITIONS ||
        !array_reserve(&p->pairs, &p->pair_capacity, num, sizeof *p->pairs) ||
        !array_reserve(&p->next, &p->next_capacity, num * (size_t)p->num_classes, sizeof *p->next))
        return -1;
    p->pairs[p->num_pairs] = pair;
    *found = (int32_t)p->num_pairs++;
    return *found;
}

static bool find_pairs(struct product *p)
{
    if (find_pair(p, (struct pair){0, 0}) < 0) return false;
    for (size_t i = 0; i < p->num_pairs; i++) {
        for (int32_t c = 0; c < p->num_classes; c++) {
            const struct pair from = p->pairs[i];
            const struct pair to = {p->a->next[from.a * p->a->alphabet.num_classes + p->a_class[c]],
                                    p->b->next[from.b * p->b->alphabet.num_classes + p->b_class[c]]};
            const int32_t number = find_pair(p, to);
            if (number < 0) return false;
            p->next[i * (size_t)p->num_classes + (size_t)c] = number;
        }
    }
    return true;
}

/* The texts of both, or of one of them at least. */
static struct regular *combine(const struct regular *a, const struct regular *b, bool both)
{
    struct product p = {.a = a, .b = b};
    struct alphabet alphabet;
    struct regular *r = NULL;
    if (!a || !b || !alphabet_join(&alphabet, &a->alphabet, &b->alphabet, &p.a_class, &p.b_class)) return NULL;
    p.num_classes = alphabet.num_classes;
    if (find_pairs(&p))
        r = regular_new((int32_t)p.num_pairs, &alphabet);
    else
        alphabet_free(&alphabet);
    if (r) memcpy(r->next, p.next, p.num_pairs * (size_t)p.num_classes * sizeof *r->next);
    for (size_t i = 0; r && i < p.num_pairs; i++) {
        const bool a_ends = a->ends[p.pairs[i].a], b_ends = b->ends[p.pairs[i].b];
        r->ends[i] = both ? a_ends && b_ends : a_ends || b_ends;
    }
    free(p.a_class);
    free(p.b_class);
    free(p.pairs);
    free(p.next);
    free(p.table);
    return regular_minimize(r);
}

struct regular *regular_union(const struct regular *a, const struct regular *b)
{
    return combine(a, b, false);
}

struct regular *regular_intersection(const struct regular *a, const struct regular *b)
{
    return combine(a, b, true);
}

bool regular_is_empty(const struct regular *r)
{
    for (int32_t s = 0; s < r->num_states; s++)
        if (r->ends[s]) return false;
    return true;
}

bool regular_matches(const struct regular *r, const char *text, size_t length)
{
    int32_t state = 0;
    if (utf8_valid_prefix(text, length) < length) return false;
    for (size_t at = 0; at < length;) {
        const int32_t c = alphabet_class(&r->alphabet, symbol_of(utf8_next(text + at, &at)));
        state = r->next[state * r->alphabet.num_classes + c];
    }
    return r->ends[state];
}
