/* Classes of characters in regular expressions: [...], \d and its kin, \p{...}, and escapes of single characters. */
#ifndef QUIRE_TOKENIZER_GRAMMAR_REGULAR_CLASS_H
#define QUIRE_TOKENIZER_GRAMMAR_REGULAR_CLASS_H

#include "tokenizer/grammar/regular_parser.h"

enum regular_escape { REGULAR_ESCAPE_CHARACTER, REGULAR_ESCAPE_SET, REGULAR_ESCAPE_FAILED };

/* Reads an escape, which begins with \: a character, or a set, which is added to `set`. */
enum regular_escape regular_parse_escape(struct regular_parser *p, bool in_brackets, uint32_t *character,
                                         struct character_set *set);
/* Reads what follows "[" to the "]", and adds it to `set`, sorted. */
enum status regular_parse_brackets(struct regular_parser *p, struct character_set *set);
/* The characters that "." does not match. */
void regular_line_ends(struct character_set *set);

#endif
