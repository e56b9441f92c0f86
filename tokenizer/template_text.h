/* The canonical text of a Jinja template: two templates with the same canonical text render alike. It leaves out what
 * does not change the output: white space and comments inside tags, the kind of quotes, message.role for
 * message['role'], one output of a + b for two of a and b, literal text inside or outside of an output. White space
 * outside of tags is output, except where transformers' settings (trim_blocks, lstrip_blocks) or a "-" remove it. */
#ifndef QUIRE_TOKENIZER_TEMPLATE_TEXT_H
#define QUIRE_TOKENIZER_TEMPLATE_TEXT_H

#include <stdbool.h>

#include "base/array.h"

/* Appends the canonical text of `source` to *out. False if a tag or a string has no end, if a string has an escape
 * other than \n \t \\ \' \", or if memory ran out. */
bool template_text_canonical(const char *source, struct text *out);

#endif
