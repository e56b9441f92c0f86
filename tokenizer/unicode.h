/* What a character is for the library tokenizers 0.23, which asks several sources with data of several versions of
 * Unicode: 9 for punctuation, marks and normal forms, 17 for digits and lower case. These functions give its answers
 * whatever the version of utf8proc is. */
#ifndef QUIRE_TOKENIZER_UNICODE_H
#define QUIRE_TOKENIZER_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool unicode_is_white_space(uint32_t c);
bool unicode_is_numeric(uint32_t c);     /* of \p{N} */
bool unicode_is_punctuation(uint32_t c); /* of \p{P}, or one of ASCII's symbols */
bool unicode_is_mark(uint32_t c);        /* of \p{M} */
/* The lower case of one character without its context: 1 or 2 characters; returns how many. */
int unicode_lower(uint32_t c, uint32_t lower[2]);
/* Whether normal forms leave it alone, as if it were not assigned: it neither decomposes, composes nor moves. */
bool unicode_is_newer_than_normal_forms(uint32_t c);

#endif
