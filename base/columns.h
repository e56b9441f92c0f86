/* How many columns text takes on a terminal. A grapheme cluster (Unicode Standard Annex 29) is one unit: a base with
 * what combines with it is as wide as the base, an emoji sequence (joined by U+200D, with a skin tone, a flag, or with
 * U+FE0F) takes two columns. Widths are utf8proc's (East Asian Width, Annex 11). */
#ifndef QUIRE_BASE_COLUMNS_H
#define QUIRE_BASE_COLUMNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Text that is read character by character. Zero-initialise it where a text begins. */
struct columns {
    int32_t state;   /* of utf8proc's grapheme breaks */
    uint32_t before; /* the last character; 0: none */
    int width;       /* of the current cluster so far */
    bool simple;     /* the cluster is one character, of whose width terminals have one opinion */
};

/* Columns that the text takes more with this character. *begins: a cluster begins with it. */
int columns_add(struct columns *c, uint32_t character, bool *begins);
/* Columns that a whole text of UTF-8 takes. */
int columns_of(const char *text, size_t length);

#endif
