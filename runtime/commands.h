/* The table of commands, and what is made from the flags of all. */
#ifndef QUIRE_RUNTIME_COMMANDS_H
#define QUIRE_RUNTIME_COMMANDS_H

#include "base/array.h"
#include "runtime/options/command.h"

enum { COMMAND_COUNT = 10 };
extern const struct command *const command_list[COMMAND_COUNT];

/* Runs the command: parses argv[1..argc), of which the first may be the name of a part. Returns the exit status. Before
 * that, a warning on stderr for each variable QUIRE_NAME of the environment that is no command's flag; but variables
 * that begin with QUIRE_TEST_ are the tests'. */
int command_run(const struct command *c, int argc, char **argv);

/* Appends the flags of every command, as lines (flag_lines.h); before each command, "page TAB NAME", where NAME is
 * "chat" or "bench latency". False: memory ran out. */
bool command_append_flags(struct text *out);

/* The manual page quire.1 in the man macros (man(7)), made from these flags. False: memory ran out. */
bool manual_print(FILE *out);
/* The completions of commands, flags and values for "bash", "zsh" or "fish". False for any other shell, or if memory
 * ran out. */
bool completions_print(const char *shell, FILE *out);

#endif
