/* UTF-8, as Unicode defines it: 1 to 4 bytes, no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef QUIRE_BASE_UTF8_H
#define QUIRE_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/array.h"

#define UTF8_REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* Bytes (1 to 4) of the character at the start of bytes[count], count >= 1; 0 if the bytes are the beginning of one
 * whose end is not there yet; -1 if no character begins with them. */
int utf8_length(const char *bytes, size_t count);

/* The character at the start of bytes[count], count >= 1; returns its bytes. Where none begins it reads U+FFFD, one
 * byte long. */
size_t utf8_decode(const char *bytes, size_t count, uint32_t *character);

/* Reads a character of text that is known to be valid, and adds its bytes to *position. */
uint32_t utf8_next(const char *text, size_t *position);
/* Writes 1 to 4 bytes and returns how many. */
size_t utf8_write(uint32_t character, char *bytes);

/* Bytes of text[length] before the first that is not UTF-8. */
size_t utf8_valid_prefix(const char *text, size_t length);

/* Appends text[length] with U+FFFD for each byte that is not part of a character. False if memory ran out. */
bool utf8_append_valid(struct text *out, const char *text, size_t length);

#endif
