/* Bars of block characters; of '#' where the locale is not UTF-8. */
#ifndef QUIRE_RUNTIME_BAR_H
#define QUIRE_RUNTIME_BAR_H

#include <stdbool.h>

/* Whether the environment's locale (LC_ALL, LC_CTYPE, LANG) has UTF-8. */
bool locale_is_utf8(void);

enum { BAR_MAX_WIDTH = 40, BAR_TEXT_SIZE = 3 * BAR_MAX_WIDTH + 1 };

/* Writes a bar of fraction * width characters, in eighths of a character with utf8, without spaces after it. A fraction
 * above 0 gives something to see. width: at most BAR_MAX_WIDTH. */
void bar_text(char out[BAR_TEXT_SIZE], double fraction, int width, bool utf8);

/* The character whose lower `eighths` of 8 are filled: 0 " ", 8 "\u2588"; in ASCII " ", "." and "#". */
const char *bar_column(int eighths, bool utf8);

#endif
