/* Regular languages over characters (code points of Unicode), with the operations that JSON Schema needs: a pattern
 * and bounds of a length at once, names that match no pattern. A language is a deterministic automaton over classes of
 * characters, made minimal. All functions return NULL if memory ran out or a language would have more than
 * REGULAR_MAX_STATES states, and take NULL, for which they return NULL: so one check at the end suffices. */
#ifndef QUIRE_TOKENIZER_GRAMMAR_REGULAR_H
#define QUIRE_TOKENIZER_GRAMMAR_REGULAR_H

#include "tokenizer/grammar/grammar.h"

enum { REGULAR_MAX_STATES = 1 << 16 };

struct regular;
void regular_free(struct regular *r); /* NULL is allowed */

/* A regular expression. What structured_outputs and JSON Schema's pattern have in common: alternatives, groups
 * (capturing and not, named), quantifiers greedy and lazy, classes and negated classes, \d \w \s \D \W \S, \uXXXX,
 * \u{...}, \xXX, \p{L} and its kin by general category and script, ".", the flags (?i) and (?s), ^, $, \A and \Z for
 * the beginning and the end of the text, and lookahead at its beginning, as in ^(?=.*\d)(?!.*\s).{8,}$. Classes are
 * those of ECMA-262: \d is 0 to 9. UNSUPPORTED, by name and place: other lookahead, lookbehind, back-references, \b,
 * possessive repetition. INVALID: no regular expression. `search`: the texts in which a match is somewhere, as with
 * JSON Schema's pattern; else those that match as a whole, as with structured_outputs.regex. */
enum status regular_parse(const char *pattern, size_t length, bool search, struct regular **out, struct error *err);

/* These texts, in UTF-8. */
struct regular_text {
    const char *bytes; /* [length] */
    size_t length;
};
struct regular *regular_texts(const struct regular_text *texts, int32_t count);
struct regular *regular_any(int64_t least, int64_t most); /* all texts of so many characters; most -1: of any number */
struct regular *regular_union(const struct regular *a, const struct regular *b);
struct regular *regular_intersection(const struct regular *a, const struct regular *b);
struct regular *regular_complement(const struct regular *a);
bool regular_is_empty(const struct regular *r);                                 /* it has no text */
bool regular_matches(const struct regular *r, const char *text, size_t length); /* the text is in it */

/* How a character is written in a grammar's bytes. */
enum regular_spelling {
    REGULAR_PLAIN,      /* in UTF-8 */
    REGULAR_JSON_STRING /* inside the quotes of a JSON string: ", \ and characters below U+0020 as their shortest escape
                           (\n, \u0001), all others as they are */
};
/* The language as a node. False: r is NULL, memory ran out, or the automaton over bytes would be too large. */
bool regular_node(const struct regular *r, enum regular_spelling spelling, struct grammar_builder *b,
                  grammar_node *out);

#endif
