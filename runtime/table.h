/* Plain-text tables: every column as wide as its longest cell, two spaces between columns. */
#ifndef QUIRE_RUNTIME_TABLE_H
#define QUIRE_RUNTIME_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/array.h"

/* Zero-initialise all but `columns`; free with table_free. */
struct table {
    const char *columns; /* one letter per column: 'l' aligns its cells left, 'r' right */
    struct text cells;   /* row by row, each ended by a NUL */
    size_t num_cells;
    bool failed; /* memory ran out: table_print prints nothing and returns false */
};

/* Appends the next cell; a row ends when every column has one. */
void table_cell(struct table *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Appends a row: a const char * for each column. */
void table_row(struct table *t, ...);
/* Writes all rows, without spaces at their ends, made visible on a terminal (base/visible.h). False if memory ran out
 * or the stream refused. */
bool table_print(const struct table *t, FILE *out);
void table_free(struct table *t);

#endif
