/* A message of several lines, as it is typed: the rules for \ and """ (line_editor.h). */
#ifndef QUIRE_RUNTIME_MESSAGE_H
#define QUIRE_RUNTIME_MESSAGE_H

#include "base/array.h"

struct message { /* zero-initialise it; free text with text_free */
    struct text text;
    size_t opened;  /* where the quotes are that opened it */
    bool is_quoted; /* they are there, and were not closed yet */
};

void message_clear(struct message *m);
/* Adds what was typed up to Return, without the newline; it may hold pasted lines. *open: a further line belongs to the
 * message; else m->text is the message. False when memory ran out. */
bool message_add(struct message *m, const char *typed, size_t length, bool *open);

#endif
