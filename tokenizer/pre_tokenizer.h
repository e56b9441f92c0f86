/* The "pre_tokenizer" of a tokenizer.json (Hugging Face's tokenizers 0.23): splits normalized text into words, which
 * are then encoded one by one. Sequence, Split (a string, or a regular expression in Oniguruma's syntax; all
 * behaviours; invert), ByteLevel, Digits, Metaspace, Punctuation, Whitespace, WhitespaceSplit; another type is refused
 * by name.
 *
 * ByteLevel writes each byte as a character of its own in tokenizers; here words stay the bytes that they stand for,
 * and so does the vocabulary (bpe.h). */
#ifndef QUIRE_TOKENIZER_PRE_TOKENIZER_H
#define QUIRE_TOKENIZER_PRE_TOKENIZER_H

#include <jansson.h>
#include <stdint.h>

#include "base/array.h"
#include "base/status.h"

struct pre_tokenizer;

struct word {
    uint32_t offset, length; /* bytes of words.text */
};
/* Zero-initialise it; free with words_free. */
struct words {
    struct text text;
    struct word *items; /* [count] */
    size_t count, capacity;
};
void words_free(struct words *w);

/* `value` is the JSON of "pre_tokenizer", NULL or null for none: the whole text is one word. */
enum status pre_tokenizer_open(const json_t *value, const char *path, struct pre_tokenizer **out, struct error *err);
void pre_tokenizer_close(struct pre_tokenizer *p); /* NULL is allowed */

bool pre_tokenizer_is_byte_level(const struct pre_tokenizer *p); /* it has a ByteLevel */

/* Overwrites *out with the words of text[length], valid UTF-8; 4 GiB or more are refused. `first`: the text begins the
 * input, so that Metaspace's prepend_scheme "first" applies. Thread-safe. Fails if memory ran out or PCRE2 fails. */
enum status pre_tokenizer_split(const struct pre_tokenizer *p, const char *text, size_t length, bool first,
                                struct words *out, struct error *err);

/* The table of ByteLevel (GPT-2's bytes_to_unicode): the byte (0 to 255) that a character stands for, or -1; and the
 * character of a byte. */
int byte_level_byte(uint32_t character);
uint32_t byte_level_character(int byte);
size_t byte_level_spell(unsigned char byte, char out[2]); /* the character in UTF-8; returns its length */

#endif
