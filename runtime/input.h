/* Input that is read whole. */
#ifndef QUIRE_RUNTIME_INPUT_H
#define QUIRE_RUNTIME_INPUT_H

#include <stdbool.h>

#include "base/array.h"
#include "base/status.h"

/* Appends to *out standard input if `name` is "-"; otherwise `name` itself if `is_text`, or the file of that name. *out
 * is NUL-terminated afterwards, even if it is empty. */
enum status input_read_all(const char *name, bool is_text, struct text *out, struct error *err);

#endif
