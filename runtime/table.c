#include "runtime/table.h"

#include <string.h>

#include "base/visible.h"

enum { MAX_COLUMNS = 32 };

void table_cell(struct table *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (!text_vprintf(&t->cells, format, args) || !text_append(&t->cells, "", 1)) t->failed = true;
    va_end(args);
    t->num_cells++;
}

void table_row(struct table *t, ...)
{
    va_list cells;
    va_start(cells, t);
    for (size_t i = strlen(t->columns); i > 0; i--) table_cell(t, "%s", va_arg(cells, const char *));
    va_end(cells);
}

/* Columns on the screen: UTF-8 continuation bytes take none. */
static size_t width_of(const char *cell)
{
    size_t width = 0;
    for (; *cell; cell++) width += ((unsigned char)*cell & 0xC0) != 0x80;
    return width;
}

static void measure(const struct table *t, size_t num_columns, size_t *widths)
{
    const char *cell = t->cells.data;
    for (size_t i = 0; i < t->num_cells; i++, cell += strlen(cell) + 1) {
        const size_t width = width_of(cell);
        if (width > widths[i % num_columns]) widths[i % num_columns] = width;
    }
}

bool table_print(const struct table *t, FILE *out)
{
    const size_t num_columns = strlen(t->columns);
    size_t widths[MAX_COLUMNS] = {0};
    if (t->failed || num_columns > MAX_COLUMNS) return false;
    if (t->num_cells == 0) return true;
    measure(t, num_columns, widths);
    const char *cell = t->cells.data;
    size_t owed = 0; /* spaces before the next cell, written once it is known not to be empty */
    for (size_t i = 0; i < t->num_cells; i++, cell += strlen(cell) + 1) {
        const size_t column = i % num_columns, width = width_of(cell);
        const size_t padding = widths[column] - width;
        const bool right = t->columns[column] == 'r';
        if (right) owed += padding;
        if (width) {
            visible_printf(out, "%*s%s", (int)owed, "", cell);
            owed = 0;
        }
        owed += (right ? 0 : padding) + 2;
        if (column + 1 == num_columns) {
            fputc('\n', out);
            owed = 0;
        }
    }
    return !ferror(out);
}

void table_free(struct table *t)
{
    text_free(&t->cells);
    t->num_cells = 0;
}
