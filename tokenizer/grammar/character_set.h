/* Sets of characters, and alphabets: the classes of characters that an automaton does not tell apart.
 *
 * Characters are numbered without a gap where the surrogates are, which no text of UTF-8 has: such a number is a
 * symbol. */
#ifndef QUIRE_TOKENIZER_GRAMMAR_CHARACTER_SET_H
#define QUIRE_TOKENIZER_GRAMMAR_CHARACTER_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { NUM_SURROGATES = 0x800, NUM_SYMBOLS = 0x110000 - NUM_SURROGATES };

static inline uint32_t symbol_of(uint32_t character) /* no surrogate */
{
    return character < 0xD800 ? character : character - NUM_SURROGATES;
}

static inline uint32_t symbol_character(uint32_t symbol)
{
    return symbol < 0xD800 ? symbol : symbol + NUM_SURROGATES;
}

/* Symbols first .. last. */
struct symbol_range {
    uint32_t first, last;
};

/* A set of symbols. Zero-initialise it. What finds no memory sets `failed` and leaves the rest undefined. */
struct character_set {
    struct symbol_range *ranges; /* [count], ascending and apart once character_set_sort was called */
    size_t count, capacity;
    bool failed;
};
void character_set_free(struct character_set *s);
/* Adds characters first .. last; surrogates among them stand for nothing. */
void character_set_add(struct character_set *s, uint32_t first, uint32_t last);
void character_set_add_set(struct character_set *s, const struct character_set *other);
void character_set_sort(struct character_set *s);
void character_set_invert(struct character_set *s); /* needs a sorted set, and leaves one */
bool character_set_equal(const struct character_set *a, const struct character_set *b); /* both sorted */
/* Adds the lower, upper and title case of each character. */
void character_set_add_cases(struct character_set *s);
/* Adds the characters of \p{name}: a general category, or a script. UNSUPPORTED: the name is not known. */
enum status character_set_add_property(struct character_set *s, const char *name, struct error *err);

/* Intervals of symbols, each of one class. */
struct alphabet {
    int32_t num_intervals, num_classes;
    uint32_t *first;   /* [num_intervals], ascending; first[0] is 0 */
    int32_t *class_of; /* [num_intervals] */
};
void alphabet_free(struct alphabet *a);
/* The coarsest alphabet in which each of the sorted sets is a union of classes. False: no memory. */
bool alphabet_of_sets(struct alphabet *out, const struct character_set *sets, size_t count);
bool alphabet_copy(struct alphabet *out, const struct alphabet *a);
/* The coarsest alphabet that is finer than both; of its class c, a_class[c] and b_class[c] are those that it is part
 * of, arrays that the caller frees. False: no memory, or too many classes. */
bool alphabet_join(struct alphabet *out, const struct alphabet *a, const struct alphabet *b, int32_t **a_class,
                   int32_t **b_class);
int32_t alphabet_interval(const struct alphabet *a, uint32_t symbol); /* the interval that the symbol is in */
int32_t alphabet_class(const struct alphabet *a, uint32_t symbol);
/* class_of[i] becomes map[class_of[i]]; neighbours of one class become one interval. */
void alphabet_map(struct alphabet *a, const int32_t *map, int32_t num_classes);

#endif
