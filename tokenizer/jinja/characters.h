/* Characters (code points) as Python's str methods judge and change them. Halves of surrogate pairs are characters,
 * too: utf8_next and utf8_write take them for characters of three bytes. */
#ifndef QUIRE_TOKENIZER_JINJA_CHARACTERS_H
#define QUIRE_TOKENIZER_JINJA_CHARACTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/utf8.h"

/* Writes the escape of a character, as Python's ascii() has it: \xhh, \uhhhh or \Uhhhhhhhh, and a NUL. Returns its
 * length. */
size_t character_escape(uint32_t c, char out[11]);
/* How many characters there are in bytes[length] of a string (struct jinja_string). */
size_t character_count(const char *bytes, size_t length);

bool character_is_space(uint32_t c);
bool character_is_line_end(uint32_t c); /* where splitlines splits */
bool character_is_alpha(uint32_t c);
bool character_is_decimal(uint32_t c);
bool character_is_digit(uint32_t c);
bool character_is_numeric(uint32_t c);
bool character_is_alnum(uint32_t c);
bool character_is_lower(uint32_t c);
bool character_is_upper(uint32_t c);
bool character_is_cased(uint32_t c);
bool character_is_case_ignorable(uint32_t c); /* between a capital sigma and the letters that choose its form */
bool character_is_printable(uint32_t c);
bool character_is_word(uint32_t c); /* \w of a regular expression */
bool character_starts_identifier(uint32_t c);
bool character_continues_identifier(uint32_t c);

enum character_case { CHARACTER_UPPER, CHARACTER_LOWER, CHARACTER_TITLE, CHARACTER_FOLD };
/* Writes the character in another case, and returns how many characters that is (1 to 3). */
int character_to_case(uint32_t c, enum character_case wanted, uint32_t out[3]);

#endif
