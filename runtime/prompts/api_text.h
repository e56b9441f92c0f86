/* Pieces of JSON, written as text: no value is made for what comes with every token of a stream. All functions append;
 * false: memory ran out. */
#ifndef QUIRE_RUNTIME_API_TEXT_H
#define QUIRE_RUNTIME_API_TEXT_H

#include <stdint.h>

#include "base/array.h"

/* text[length], UTF-8, as a JSON string; NULL: null. */
bool api_write_string(struct text *out, const char *text, size_t length);
bool api_write_integer(struct text *out, int64_t value);
/* ids[count] with commas between them, and before them if *list holds some. */
bool api_write_ids(struct text *list, const int32_t *ids, size_t count);
/* Text that was put together before. */
bool api_write_text(struct text *out, const struct text *text);

#endif
