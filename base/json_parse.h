/* JSON text to values of jansson, and the values that jansson has no type for. */
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
 *   - NaN, Infinity and -Infinity, integers beyond int64 and reals beyond double: spelled numbers, see below;
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

/* A number for which jansson has no type is an object of a form that no text has, and holds the spelling. So it is no
 * integer, real or string to any reader, and is refused where its value is wanted; what looks for an object asks
 * json_is_map. */
json_t *json_spelled_number(const char *spelling, size_t length); /* NULL: no memory */
const char *json_spelling(const json_t *value);                   /* NULL: it is no such number */
bool json_is_whole(const json_t *value);                          /* an integer of any size */
bool json_is_map(const json_t *value);                            /* an object, and not such a number */

/* A string of whole characters without U+0000, which can be used as a C string. */
bool json_is_text(const json_t *value);
#define JSON_TEXT "a string of whole characters without U+0000" /* in messages */

/* How many bytes at the beginning of the text are white space of JSON. */
size_t json_leading_blanks(const char *text, size_t length);

/* INVALID: text[length], made of such strings, holds half of a surrogate pair, or a key's U+0000, and so cannot be
 * given to a model. `name` begins the sentence. Other bytes that are not UTF-8 are not looked for. */
enum status json_check_characters(const char *name, const char *text, size_t length, struct error *err);

#ifdef __cplusplus
}
#endif

#endif
