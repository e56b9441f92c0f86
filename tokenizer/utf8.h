/* UTF-8, as SentencePiece judges it: 1 to 4 bytes, no overlong forms, no surrogates, nothing above U+10FFFF. */
#ifndef QUIRE_TOKENIZER_UTF8_H
#define QUIRE_TOKENIZER_UTF8_H

#include <stddef.h>

#define UTF8_REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* Bytes (1 to 4) of the character at the start of bytes[count], count >= 1; 0 if the bytes are the beginning of one
 * whose end is not there yet; -1 if no character begins with them. */
int utf8_length(const char *bytes, size_t count);

#endif
