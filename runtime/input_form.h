/* Whether an input is JSON Lines, an object on each line, as its name and its lines tell. */
#ifndef QUIRE_RUNTIME_INPUT_FORM_H
#define QUIRE_RUNTIME_INPUT_FORM_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* Whether the name ends as that of a packed file does: .gz or .zst. */
bool input_name_is_packed(const char *name);

struct input_form {
    bool begun;   /* a line was there */
    bool objects; /* every line from here on is a JSON object, or wrong */
};

/* What the name of a file tells: one that ends with .json or .jsonl, packed or not, holds objects. */
struct input_form input_form_of(const char *name);

/* Takes the next line that is not blank. A line that begins with '{' makes the lines behind it objects, too. INVALID:
 * the first line shows that the file is a JSON array, or an object over several lines; the sentence says how to convert
 * it. */
enum status input_form_take(struct input_form *form, const char *line, size_t length, struct error *err);

#endif
