/* What is asked from the command line: a text or a file of text, and material on standard input. */
#ifndef QUIRE_RUNTIME_QUESTION_H
#define QUIRE_RUNTIME_QUESTION_H

#include "base/array.h"
#include "base/status.h"

/* Overwrites *out with the text that the argument means (runtime/input.h); that of a file and of standard input is
 * without newlines at its end. It is checked to be UTF-8. Free *out in any case. */
enum status question_read(const char *argument, struct text *out, struct error *err);

/* Reads standard input to its end, and appends it after a blank line, without newlines at its end; nothing if it holds
 * nothing. When stderr is a terminal, it says there after two seconds without input what quire is waiting for. */
enum status question_add_input(struct text *question, struct error *err);

/* The question with material below it: a blank line stands between them. False if memory ran out. */
bool question_add(struct text *question, const char *material, size_t length);

#endif
