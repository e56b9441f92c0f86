/* What is asked from the command line, and the material on standard input that goes below it. */
#ifndef QUIRE_RUNTIME_QUESTION_H
#define QUIRE_RUNTIME_QUESTION_H

#include "base/array.h"
#include "base/status.h"

/* Reads standard input to its end, and appends it after a blank line, without newlines at its end; nothing if it holds
 * nothing. When stderr is a terminal, it says there after two seconds without input what quire is waiting for. */
enum status question_add_input(struct text *question, struct error *err);

/* The question with material below it: a blank line stands between them. False if memory ran out. */
bool question_add(struct text *question, const char *material, size_t length);

#endif
