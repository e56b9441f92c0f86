/* The value of an argument that a model wrote as plain text, as JSON of the type that the tool's schema has for it. */
#ifndef QUIRE_RUNTIME_TOOL_VALUE_H
#define QUIRE_RUNTIME_TOOL_VALUE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/array.h"

/* Types that a value may have. */
enum {
    TOOL_NULL = 1,
    TOOL_INTEGER = 2,
    TOOL_NUMBER = 4,
    TOOL_BOOLEAN = 8,
    TOOL_OBJECT = 16,
    TOOL_ARRAY = 32,
    TOOL_STRING = 64
};

/* The property `key`[length] of a schema of arguments; NULL: it has none of this name. */
const json_t *tool_property(const json_t *schema, const char *key, size_t length);

/* The types of a property: those that it names, those of its constants, and those of its branches. `root` is the schema
 * that references lead into. 0: it says nothing. */
unsigned tool_value_types(const json_t *root, const json_t *property);

/* Appends text[length] as the first type of the list above as which it can be read; a string if it is none of them.
 * With types 0 it is any JSON, or else a string. False: memory ran out. */
bool tool_value_append(struct text *out, unsigned types, const char *text, size_t length);

#endif
