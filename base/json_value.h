/* Values of jansson: what jansson has no type for, the way to text, and how messages show them. */
#ifndef QUIRE_BASE_JSON_VALUE_H
#define QUIRE_BASE_JSON_VALUE_H

#include <stdio.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/array.h"
#include "base/status.h"

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

/* false, 0, or an empty array or object. */
bool json_is_off(const json_t *value);
/* The string `word`. */
bool json_is_word(const json_t *value, const char *word);

/* INVALID: text[length], made of strings that json_value_parse gave, holds half of a surrogate pair, or a key's U+0000,
 * and so cannot be given to a model. `name` begins the sentence. Other bytes that are not UTF-8 are not looked for. */
enum status json_check_characters(const char *name, const char *text, size_t length, struct error *err);

/* Sets a key of an object that is to be printed. A NULL string is written as null. A number that is not finite, a
 * string that is not UTF-8, and any value for which there is no memory leave the object as it is. */
void json_put_integer(json_t *object, const char *key, int64_t value);
void json_put_real(json_t *object, const char *key, double value);
void json_put_string(json_t *object, const char *key, const char *value);

/* Appends any value as JSON, in one line of ASCII and UTF-8 unless `flags` (jansson's) say otherwise. What
 * json_value_parse has read is written as it was spelled, where jansson has no form for it. False: memory ran out. */
bool json_append(struct text *out, const json_t *value, size_t flags);
/* Appends text[length] as the inside of a JSON string, without quotes: only what must be escaped is. */
bool json_append_escaped(struct text *out, const char *text, size_t length);
/* Writes the value with a newline; at a terminal as visible.h has it. False: it is NULL, memory ran out, or the stream
 * refused. */
bool json_print(const json_t *value, size_t flags, FILE *out);

/* Text from outside, made fit for a message: cut at a whole character, control characters replaced by '?'. */
struct shown {
    char text[160];
};
struct shown show_text(const char *text, size_t length);
struct shown show_string(const char *string); /* NULL shows as nothing, in show_value too */
struct shown show_value(const json_t *value); /* as compact JSON */

#endif
