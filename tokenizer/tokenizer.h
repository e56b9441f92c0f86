/* Text to token ids and back, for a checkpoint folder as published. The vocabulary is in tokenizer.json (byte-pair
 * encoding: pipeline.h) or in tokenizer.model (sentencepiece.h); where there are both, tokenizer.json is taken, as
 * transformers does. tokenizer_config.json and its kin name the special tokens, and have the chat template. A tokenizer
 * never changes once it is open, so several threads may share one.
 *
 * Added tokens. Besides the pieces of the vocabulary a tokenizer has added tokens, which are found in a text by their
 * spelling before anything else. Those that mark the parts of a chat or the end of a text are special. A special token
 * is found only where the caller says that the text may name it; the others, such as runs of spaces, stand for text and
 * are found everywhere.
 *
 * Spaces. A text is encoded with the dummy prefix of its model, if that has one: "Hello" becomes the pieces of "
 * Hello". With tokenizer.model the text between two added tokens counts as a text of its own and gets the prefix too,
 * as in Llama's reference code and in llama.cpp; with tokenizer.json that file says so. */
#ifndef QUIRE_TOKENIZER_TOKENIZER_H
#define QUIRE_TOKENIZER_TOKENIZER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/array.h"
#include "base/status.h"
#include "tokenizer/marked_text.h"
#include "tokenizer/token_list.h"

struct tokenizer;
struct token_table;
struct named_template;

/* Opens the tokenizer of a checkpoint folder: a component of tokenizer.json that quire does not have is refused by
 * name. tokenizer_file says which file was taken. add_eos_token is ignored, because a model has nothing to add to a
 * prompt that ends with eos. */
enum status tokenizer_open(const char *folder, struct tokenizer **out, struct error *err);
void tokenizer_close(struct tokenizer *t); /* NULL is allowed */

int32_t tokenizer_size(const struct tokenizer *t);     /* ids are 0 .. size-1, added tokens included */
int32_t tokenizer_bos_id(const struct tokenizer *t);   /* -1: none */
int32_t tokenizer_eos_id(const struct tokenizer *t);   /* -1: none */
const char *tokenizer_file(const struct tokenizer *t); /* the name of its file in the folder */
/* Control pieces and added tokens marked special are special. The unknown piece of a tokenizer.model is not, because it
 * stands for text; that of a tokenizer.json often is, and then decoding drops it. */
bool tokenizer_is_special(const struct tokenizer *t, int32_t id);
/* The id of the special or added token with this text, or -1. */
int32_t tokenizer_special_id(const struct tokenizer *t, const char *text);

/* The chat templates of the folder (tokenizer_config.h): [*count], owned by t. */
const struct named_template *tokenizer_chat_templates(const struct tokenizer *t, size_t *count);
/* The variables that chat templates see besides their input, as transformers gives them: bos_token, eos_token and the
 * other named tokens, as strings. Owned by t. */
const json_t *tokenizer_template_variables(const struct tokenizer *t);

/* The bytes that one id adds to a text: [*length], not NUL-terminated, owned by t. U+2581 becomes a space; a byte piece
 * gives its byte; a special token gives nothing unless `with_special`, and an id outside the vocabulary nothing. Never
 * allocates. */
const char *tokenizer_token_bytes(const struct tokenizer *t, int32_t id, bool with_special, size_t *length);

/* The table of all tokens (token_table.h); owned by t. */
const struct token_table *tokenizer_tokens(const struct tokenizer *t);

enum tokenizer_flags {
    TOKENIZER_ADD_SPECIAL = 1,  /* put around the text what the tokenizer puts there: most often bos in front */
    TOKENIZER_PARSE_SPECIAL = 2 /* find special tokens in the text. Without this flag no text can produce one */
};
enum { TOKENIZER_MAX_TEXT = 1 << 29 }; /* bytes of one text */

/* Appends the ids of text[length] to *out; after a failure *out is as it was. Each byte that is not part of a UTF-8
 * character counts as U+FFFD. */
enum status tokenizer_encode(const struct tokenizer *t, const char *text, size_t length, unsigned flags,
                             struct token_list *out, struct error *err);
/* Like tokenizer_encode, for a text of which a person wrote a part: special tokens are found where no byte of them is
 * marked. */
enum status tokenizer_encode_marked(const struct tokenizer *t, const struct marked_text *text, struct token_list *out,
                                    struct error *err);
/* Appends the text of ids[count] to *out, as the library of the tokenizer's file decodes it (SentencePiece,
 * tokenizers): without the space that encoding put before the first word, and with U+FFFD for bytes that form no
 * character. With `with_special`, special tokens are shown. Fails on an id outside the vocabulary; then *out is as it
 * was. */
enum status tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t count, bool with_special,
                             struct text *out, struct error *err);

#endif
