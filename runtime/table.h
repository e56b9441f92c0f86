/* Plain-text tables: every column as wide as its longest cell, two spaces between columns. */
#ifndef QUIRE_RUNTIME_TABLE_H
#define QUIRE_RUNTIME_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/array.h"

/* Zero-initialise all but `columns`; free with table_free. */
struct table {
    const char *columns; /* one letter a column, 'l' or 'r': where its cells are aligned */
    struct text cells;   /* row by row, each ended by a NUL */
    size_t num_cells;
    bool failed; /* memory ran out: table_print then prints nothing but says so by false */
};

/* Appends the next cell; a row ends when every column has one. A row of empty cells at the end is not printed wide:
 * trailing spaces are left out. */
void table_cell(struct table *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Appends a row of one cell and empty ones. */
void table_heading(struct table *t, const char *text);
/* Writes all rows. False if memory ran out or the stream refused. */
bool table_print(const struct table *t, FILE *out);
void table_free(struct table *t);

/* Bytes as a person reads them: "1.234 GiB", "20.5 MiB", "512 B"; four digits, so that the report of a small model adds
 * up. Writes to out, at least 16 bytes, and returns it. */
const char *table_bytes(char *out, int64_t bytes);

#endif
