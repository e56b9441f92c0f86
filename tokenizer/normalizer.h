/* The "normalizer" of a tokenizer.json (Hugging Face's tokenizers 0.23): what is done to text before it is split.
 * Sequence, NFC, NFD, NFKC, NFKD, Replace, Prepend, Lowercase, Strip, StripAccents; another type is refused by name. */
#ifndef QUIRE_TOKENIZER_NORMALIZER_H
#define QUIRE_TOKENIZER_NORMALIZER_H

#include <jansson.h>

#include "base/status.h"
#include "tokenizer/marked_text.h"

/* The most bytes that the normalizer or the pre_tokenizer of a tokenizer.json may make of a text of this length. NFKD
 * makes 11 bytes of one, and those that write spaces as something longer a few; but nothing in the format keeps a
 * tokenizer.json from making gigabytes of a letter. */
size_t normalizer_max_length(size_t length);

struct normalizer;

/* `value` is the JSON of "normalizer", NULL or null for none; `path` names the file in messages. */
enum status normalizer_open(const json_t *value, const char *path, struct normalizer **out, struct error *err);
void normalizer_close(struct normalizer *n); /* NULL is allowed */

/* Whether normalizing changes nothing, for any text. */
bool normalizer_is_identity(const struct normalizer *n);

/* Overwrites *out with the normalized text[length], which is valid UTF-8. marks: [length], or NULL. A byte of the
 * result is marked if one of those that it was made of is. Thread-safe. Fails if memory ran out, if the search for a
 * regular expression is given up (regexp.h), or if the text would become longer than normalizer_max_length(length). */
enum status normalizer_apply(const struct normalizer *n, const char *text, const char *marks, size_t length,
                             struct marked_text *out, struct error *err);

#endif
