/* Reads the lines that command_append_tables writes, for what is made from the flags of all commands: the manual page
 * and the completions of shells. */
#ifndef QUIRE_RUNTIME_FLAG_LINES_H
#define QUIRE_RUNTIME_FLAG_LINES_H

#include <stdbool.h>

/* The fields point into the line. */
struct flag_line {
    const char *kind;                              /* "page", "usage", "summary", "heading" or "flag" */
    const char *name;                              /* of a flag; of any other line its text */
    const char *letters, *negation, *value, *help; /* of a flag; "" where it has none; negation: "" or "no-" */
};

/* Takes the next line off *at, which it cuts into strings. False at the end. */
bool flag_line_next(char **at, struct flag_line *out);

#endif
