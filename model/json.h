/* What the readers of config.json and safetensors share: strict JSON (jansson) whose errors name the file, and text
 * from a file made fit for an error message. */
#ifndef QUIRE_MODEL_JSON_H
#define QUIRE_MODEL_JSON_H

#include <jansson.h>
#include <stddef.h>

#include "base/status.h"

/* Parses bytes[length], which must be one JSON object and nothing else but white space: no duplicate keys, no NUL,
 * valid UTF-8, numbers within range. `path` is for the message only. Free *out with json_decref. */
enum status json_object_parse(const char *bytes, size_t length, const char *path, json_t **out, struct error *err);
/* The same for a whole regular file. */
enum status json_object_read(const char *path, json_t **out, struct error *err);

/* A string or value of a file as a message shows it: cut to fit, control characters replaced. */
struct shown {
    char text[160];
};
struct shown show_string(const char *string);
struct shown show_value(const json_t *value); /* as compact JSON; NULL shows as nothing */

#endif
