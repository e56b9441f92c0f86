/* How every command takes input, where it says TEXT|@FILE|-:
 *
 *     TEXT     the text itself
 *     @FILE    what the file holds; for commands that read lines, gzip and zstd are unpacked
 *     -        standard input
 *     @@TEXT   a text that begins with @
 *
 * A flag that takes a FILE takes its name, or - for standard input. */
#ifndef QUIRE_RUNTIME_INPUT_H
#define QUIRE_RUNTIME_INPUT_H

#include <stdbool.h>

#include "base/array.h"
#include "base/status.h"

/* Where an argument's text lies. */
enum input_place { INPUT_TEXT, INPUT_FILE, INPUT_STANDARD };
/* *rest is the text, the file's name or "-". */
enum input_place input_place(const char *argument, const char **rest);

/* Appends to *out the text that the argument means. *out is NUL-terminated afterwards, even if it is empty. */
enum status input_read_text(const char *argument, struct text *out, struct error *err);
/* Appends what the file of that name holds, or for "-" standard input. NUL-terminates, too. */
enum status input_read_file(const char *name, struct text *out, struct error *err);

/* Checks that the bytes are UTF-8, and drops a byte order mark and newlines at the end. `source` begins a sentence. */
enum status input_clean(struct text *text, const char *source, struct error *err);
/* Overwrites *out with the text of a message that the argument means; that of a file and of standard input is cleaned.
 * Free *out in any case. */
enum status input_read_message(const char *argument, struct text *out, struct error *err);

/* If standard input is a terminal, says on stderr that the command reads from it until Ctrl-D; `what`: "prompts". */
void input_note_terminal(const char *command, const char *what);

#endif
