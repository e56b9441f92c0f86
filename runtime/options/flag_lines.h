/* The flags of all commands as lines, for the manual page, the completions of shells, and sentences about a flag that
 * is another command's. Each command's begin with "page TAB NAME"; what follows is written by options_append_lines. */
#ifndef QUIRE_RUNTIME_OPTIONS_FLAG_LINES_H
#define QUIRE_RUNTIME_OPTIONS_FLAG_LINES_H

#include <stdbool.h>
#include <stddef.h>

/* The fields point into the line. */
struct flag_line {
    const char *kind;                              /* "page", "usage", "summary", "heading" or "flag" */
    const char *name;                              /* of a flag; of any other line its text */
    const char *letters, *negation, *value, *help; /* of a flag; "" where it has none; negation: "" or "no-" */
};

/* Takes the next line off *at, which it cuts into strings. False at the end. */
bool flag_line_next(char **at, struct flag_line *out);

/* Whether a command has a flag of that name, without dashes. page[size] gets the name of the first; NULL: not asked
 * for. NULL for `lines` is no lines. */
bool flag_lines_find(const char *lines, const char *name, char *page, size_t size);

#endif
