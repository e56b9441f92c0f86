/* Messages typed at a terminal, with editing, history and completion. A message may have several lines:
 *
 *   \ at the end of a line          the message goes on; the backslash is dropped
 *   """ at the start of a message   it goes on to a line that ends with """; both are dropped. After a command, too:
 *                                   /system """
 *   pasted text                     all of it belongs to the message, whatever lines it has (bracketed paste); Return
 *                                   sends it
 *
 * The prompt of such further lines is "... ", and Ctrl-D on an empty one ends the message. The history is shared by the
 * sessions that run at a time, keeps each message once, and gives back a message of several lines as one.
 *
 *   Up, Down             the line above or below; from the first and last line, older and newer messages
 *   PageUp, PageDown     those that begin as what stands before the cursor
 *   Ctrl-R               those that contain what is typed next
 *   Ctrl-Left, -Right    by words
 *   Alt-Return           a further line, which can be edited together with the others
 *   Tab                  completes a word, or lists what it may become
 *   Ctrl-C, Ctrl-Z       drops the message; stops the process, which goes on with the message afterwards
 *
 * The other keys are those of libedit's emacs mode, and ~/.editrc may change all but the last two.
 *
 * Built on libedit: of the libraries for editing lines that Debian 12 and Ubuntu 24.04 both package, readline's licence
 * (GPL) does not go with this one's, and libtecla knows no UTF-8; replxx, linenoise and isocline are not in Debian 12.
 * What libedit lacks (pastes, several lines, searching by prefix, a shared history) is added through its interface for
 * own commands. It shows a character that combines with the one before it, but counts a column for it. */
#ifndef QUIRE_RUNTIME_LINE_EDITOR_H
#define QUIRE_RUNTIME_LINE_EDITOR_H

#include <stdbool.h>
#include <stddef.h>

struct line_editor;

/* What the word before the cursor may become. */
struct line_candidates;
/* Adds one: the whole word. A word that ends with '/' is a folder: no space is put after it. */
void line_candidates_add(struct line_candidates *c, const char *word);
/* Adds the files and folders whose path begins with prefix[length], which may begin with "~/". Hidden ones only if the
 * prefix's last part begins with '.'. Each word is `before`, the path, and for folders '/'. */
void line_candidates_add_files(struct line_candidates *c, const char *before, const char *prefix, size_t length);

/* Called when Tab is pressed, with the message up to the cursor: adds the candidates, and returns where in text the
 * word begins that they replace. */
typedef size_t line_complete(void *user, const char *text, size_t length, struct line_candidates *c);

/* All strings and `user` are referred to, and must outlive the editor. */
struct line_editor_options {
    const char *prompt;         /* before the first line of a message; at most 15 bytes */
    const char *interrupt_hint; /* shown when Ctrl-C clears what was typed */
    const char *history;        /* name of a file in ${XDG_STATE_HOME:-~/.local/state}/quire, readable by its owner
                                   alone; NULL, or where it cannot be written: the history is kept for the run only */
    line_complete *complete;    /* NULL: Tab does nothing */
    bool (*leave)(void *user);  /* called when Ctrl-C is pressed: true ends the input; NULL: it never does */
    void *user;                 /* for both */
};

/* Reads stdin and draws on stderr, or on stdout if stderr is no terminal. NULL on failure. */
struct line_editor *line_editor_open(const struct line_editor_options *options);
/* Gives the terminal back as it was. NULL is allowed. */
void line_editor_close(struct line_editor *e);

/* The next message, [*length] without its last newline, valid until the next call; it enters the history unless it is
 * blank. NULL at the end of the input (Ctrl-D on an empty line, or options.leave). During the call Ctrl-C clears the
 * message instead of sending SIGINT. Between two calls keys are not shown, and wait for the next call; Ctrl-C and
 * Ctrl-Z are signals. */
const char *line_editor_read(struct line_editor *e, size_t *length);

/* Gives the terminal back as it was until the next read: for a program that uses it in between, such as $EDITOR. */
void line_editor_release(struct line_editor *e);

#endif
