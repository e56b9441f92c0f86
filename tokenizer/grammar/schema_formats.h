/* The formats of JSON Schema that quire knows: each is a regular expression that a string matches as a whole, or a
 * range of integers. */
#ifndef QUIRE_TOKENIZER_GRAMMAR_SCHEMA_FORMATS_H
#define QUIRE_TOKENIZER_GRAMMAR_SCHEMA_FORMATS_H

#include <stdbool.h>

bool schema_format_is_known(const char *name);
const char *schema_format_pattern(const char *name); /* NULL: the format is not of strings */
/* Sets the least and most, as JSON writes them. False: the format is not of integers. */
bool schema_format_range(const char *name, const char **least, const char **most);

#endif
