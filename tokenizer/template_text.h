/* The canonical text of a Jinja template. Two templates with the same canonical text render the same, if the sums that
 * they print are sums of strings. These differences do not change it:
 *
 *     {{ a + 'x' }}  {{ a }}{{ "x" }}  {{ a }}x       sums and literal text, kinds of quotes
 *     message.role   message['role']
 *     {%- if a %}    {% if  a  %}                     white space in tags, and around them if it is not output
 *     {# a comment #}
 *
 * White space outside of tags is output, unless the "-" of a tag or transformers' settings (trim_blocks,
 * lstrip_blocks) remove it. */
#ifndef QUIRE_TOKENIZER_TEMPLATE_TEXT_H
#define QUIRE_TOKENIZER_TEMPLATE_TEXT_H

#include <stdbool.h>

#include "base/array.h"

/* Appends the canonical text of `source` to *out. False if there is none: a tag or a string without an end, an escape
 * that is not one of \n \t \\ \' \", an output with an operator other than +; or if memory ran out. */
bool template_text_canonical(const char *source, struct text *out);

#endif
