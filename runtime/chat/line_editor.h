/* Lines typed at a terminal, with editing and history (libedit). The history is kept in
 * ${XDG_STATE_HOME:-~/.local/state}/quire/history, or for this run only if that cannot be written. */
#ifndef QUIRE_RUNTIME_LINE_EDITOR_H
#define QUIRE_RUNTIME_LINE_EDITOR_H

#include <stdbool.h>
#include <stddef.h>

struct line_editor;

/* Reads stdin and draws on stderr, or on stdout if stderr is no terminal. `prompt` (at most 15 bytes) stands before
 * every line; `interrupt_hint` is shown when Ctrl-C clears a line, and must outlive the editor. NULL on failure. */
struct line_editor *line_editor_open(const char *prompt, const char *interrupt_hint);
/* Saves the history. NULL is allowed. */
void line_editor_close(struct line_editor *e);

/* The next line, [*length] without its newline, valid until the next call; it enters the history unless it is blank.
 * NULL at the end of the input (Ctrl-D on an empty line). During the call Ctrl-C clears the line instead of
 * sending SIGINT. */
const char *line_editor_read(struct line_editor *e, size_t *length);

/* Gives the terminal back as it was until the next read: for a program that uses it in between, such as $EDITOR. */
void line_editor_release(struct line_editor *e);

#endif
