/* JSON text to values of jansson (json_value.h). */
#ifndef QUIRE_BASE_JSON_PARSE_H
#define QUIRE_BASE_JSON_PARSE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Parses bytes[length], which must be one JSON object or array and white space. What Python's json module reads is
 * read: RFC 8259 in UTF-8, perhaps after a byte order mark, with
 *   - NaN, Infinity and -Infinity, integers beyond int64 and reals beyond double: spelled numbers;
 *   - equal keys in an object, of which the last counts;
 *   - "\u0000", and halves of surrogate pairs such as "\ud800", which are kept as the three bytes that UTF-8 would give
 *     them. So a string may hold NUL, and bytes that are not UTF-8; json_is_text tells. In a key, U+0000 is C0 80.
 * `flags` are jansson's: JSON_REJECT_DUPLICATES refuses an object with two equal keys, JSON_DECODE_ANY takes any value.
 * `source` names the JSON in messages; NULL: nothing does. Free *out, NULL after a failure, with json_decref. */
enum status json_value_parse(const char *bytes, size_t length, size_t flags, const char *source, json_t **out,
                             struct error *err);
/* Parses as json_value_parse does, and refuses what is not an object. */
enum status json_object_parse(const char *bytes, size_t length, size_t flags, const char *source, json_t **out,
                              struct error *err);

/* How many bytes at the beginning of the text are white space of JSON. */
size_t json_leading_blanks(const char *text, size_t length);

#ifdef __cplusplus
}
#endif

#endif
