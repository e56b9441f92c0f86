/* Where all characters of some classes lead to the same place, as in a string, texts of them need not be read byte by
 * byte. */
#ifndef QUIRE_TOKENIZER_GRAMMAR_LOOPS_H
#define QUIRE_TOKENIZER_GRAMMAR_LOOPS_H

#include "tokenizer/grammar/pushdown.h"
#include "tokenizer/grammar/vocabulary_state.h"

/* classes[n]: all texts of at most n characters of these classes lead somewhere; the last entry: all texts of them. */
enum { LOOP_LENGTHS = SHORT_TOKEN + 1 };
struct loops {
    uint64_t classes[LOOP_LENGTHS + 1];
};

/* Those of a place. `circles_only`: of a place to which no characters lead back all classes are 0, without a look at
 * the places that follow it. If there is no memory for them, they are 0. */
const struct loops *loops_find(struct pushdown *p, struct place *at, bool circles_only);

static inline bool loops_allow(const struct loops *l, uint64_t classes, int most_characters)
{
    return (classes & ~l->classes[most_characters < LOOP_LENGTHS ? most_characters : LOOP_LENGTHS]) == 0;
}

extern const struct loops no_loops; /* all 0 */

#endif
