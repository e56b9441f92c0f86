/* Reads a vocabulary in tiktoken's form as what tokenizer_json_read makes of a tokenizer.json with the same tokens.
 *
 * Each line is the bytes of a token in base64, a space, and its id, which is its rank, too: of all neighbours whose
 * bytes together are a token, those are merged first that make the one of the lowest id, and of equal ones the
 * leftmost. A word that is a token is that token. The file does not say how a text is split into words: the program
 * that reads it does. */
#ifndef QUIRE_TOKENIZER_TIKTOKEN_H
#define QUIRE_TOKENIZER_TIKTOKEN_H

#include "tokenizer/tokenizer_json.h"

/* Whether the file is one: its first line has the form. */
bool tiktoken_is(const char *path);

/* Words are split by the regular expression `pattern`, in Oniguruma's syntax. Errors name the file and the line. Free
 * with tokenizer_json_free, also after a failure. */
enum status tiktoken_read(const char *path, const char *pattern, struct tokenizer_json *out, struct error *err);

/* How Moonshot's TikTokenTokenizer splits words: of Moonlight and Kimi (2025). */
extern const char tiktoken_kimi_pattern[];

#endif
