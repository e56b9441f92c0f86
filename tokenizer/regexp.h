/* Regular expressions in Oniguruma's syntax (regexp_syntax.h), compiled and run by PCRE2, and the matches of one in a
 * text, as rust-onig's find_iter gives them. */
#ifndef QUIRE_TOKENIZER_REGEXP_H
#define QUIRE_TOKENIZER_REGEXP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct regexp;

/* pattern[length] is valid UTF-8. `literal`: the text itself is looked for. */
enum status regexp_open(const char *pattern, size_t length, bool literal, struct regexp **out, struct error *err);
void regexp_close(struct regexp *re); /* NULL is allowed */

/* What a thread needs for searching, with any regular expressions. NULL: memory ran out. */
struct regexp_memory;
struct regexp_memory *regexp_memory_new(void);
void regexp_memory_free(struct regexp_memory *m);

/* The matches in text[length], valid UTF-8, from left to right; they do not overlap. */
struct regexp_search {
    const struct regexp *re;
    struct regexp_memory *memory;
    const char *text;
    size_t length;
    size_t from;     /* where the next search begins; above length: there are no more matches */
    size_t last_end; /* of the last match; an empty match is not taken there. SIZE_MAX: none yet */
};
struct regexp_search regexp_search(const struct regexp *re, struct regexp_memory *m, const char *text, size_t length);

/* Sets [*start, *end) to the next match; *start is SIZE_MAX if there is none. Fails if memory ran out, or if the
 * expression tries more ways to match than quire allows. */
enum status regexp_next(struct regexp_search *s, size_t *start, size_t *end, struct error *err);

#endif
