/* What is said to a person: notes, warnings, errors. On a terminal its lines are broken between words, not within. */
#ifndef QUIRE_BASE_NOTICE_H
#define QUIRE_BASE_NOTICE_H

#include <stdbool.h>
#include <stdio.h>

#include "base/array.h"

/* Columns of the terminal that the stream is; 0: it is none, or does not say. */
int notice_columns(FILE *stream);

/* Appends `text`, with a newline and `indent` spaces in place of the spaces before each word that would go beyond
 * `columns`. A longer word stays whole. `column`: where the text begins. False: memory ran out. */
bool notice_wrap(struct text *out, const char *text, int column, int indent, int columns);

/* Writes a line, wrapped; `text` begins at column `indent`, and so do its further lines. `columns` 0: no end. */
void notice_print_line(FILE *stream, const char *text, int indent, int columns);

/* fprintf, wrapped on a terminal, and made visible there (visible.h). False, with errno, if the stream refused it. */
bool notice_printf(FILE *stream, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
