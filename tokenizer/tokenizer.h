/* Text to token ids and back, for a checkpoint folder as published: tokenizer.model, and tokenizer_config.json for the
 * special tokens, whether a bos is added, and the chat template. (tokenizer.json, byte-level BPE, comes later behind
 * the same interface.) Immutable once open, so several threads may use one.
 *
 * Spaces. A text is encoded with the dummy prefix of its model: "Hello" becomes the pieces of " Hello". Where a text
 * holds special tokens, each stretch between them is a text of its own, prefix included, as in the reference code of
 * Llama and in llama.cpp; that is also how a chat is put together (chat_template.h). */
#ifndef QUIRE_TOKENIZER_TOKENIZER_H
#define QUIRE_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/array.h"
#include "base/status.h"

struct tokenizer;
struct token_table;

/* A growable list of token ids. Zero-initialise it; free with token_list_free. */
struct token_list {
    int32_t *ids; /* [count] */
    size_t count, capacity;
};
bool token_list_append(struct token_list *list, const int32_t *ids, size_t count);
void token_list_free(struct token_list *list);

/* Opens the tokenizer of a checkpoint folder. Files that are optional: all but tokenizer.model. Not looked at:
 * add_eos_token (a prompt that ends with an end leaves nothing to say), and the lstrip, rstrip and normalized marks of
 * added tokens. */
enum status tokenizer_open(const char *folder, struct tokenizer **out, struct error *err);
void tokenizer_close(struct tokenizer *t); /* NULL is allowed */

int32_t tokenizer_size(const struct tokenizer *t);   /* ids are 0 .. size-1, added tokens included */
int32_t tokenizer_bos_id(const struct tokenizer *t); /* -1: none */
int32_t tokenizer_eos_id(const struct tokenizer *t); /* -1: none */
bool tokenizer_adds_bos(const struct tokenizer *t);  /* add_bos_token of tokenizer_config.json; true if it is silent */
/* Control pieces, and added tokens marked special. The unknown piece is not: it stands for text. */
bool tokenizer_is_special(const struct tokenizer *t, int32_t id);
/* The special or added token so written, or -1. */
int32_t tokenizer_special_id(const struct tokenizer *t, const char *text);
const char *tokenizer_chat_template(const struct tokenizer *t); /* Jinja source, or NULL */

/* What one id adds to a text: bytes[*length], not NUL-terminated, owned by t; a space for U+2581, the byte for a byte
 * piece, "" for a special token unless `with_special`, "" for an id that is not in the vocabulary. Never allocates. */
const char *tokenizer_token_bytes(const struct tokenizer *t, int32_t id, bool with_special, size_t *length);

/* The same for all ids at once, with what is needed to join them (token_table.h); owned by t. */
const struct token_table *tokenizer_tokens(const struct tokenizer *t);

enum tokenizer_flags {
    TOKENIZER_ADD_BOS = 1,       /* put the bos first, if the tokenizer adds one */
    TOKENIZER_PARSE_SPECIAL = 2, /* match special and added tokens in the text, leftmost first, then longest; without
                                    it a text can never produce one, whatever it spells */
    TOKENIZER_CONTINUES = 4      /* the text goes on where another ended: no dummy prefix */
};
/* Appends the ids of text[length] to *out; after a failure *out is as it was. */
enum status tokenizer_encode(const struct tokenizer *t, const char *text, size_t length, unsigned flags,
                             struct token_list *out, struct error *err);
/* Appends the text of ids[count] to *out: the whole decode, as SentencePiece gives it (the space that encoding put
 * before the first word is taken off). Bytes that do not form UTF-8 become U+FFFD, one for each byte. With
 * `with_special`, special tokens are shown, and the space after each is taken off too, so that what was encoded with
 * TOKENIZER_PARSE_SPECIAL comes back. Fails on an id that is not in the vocabulary; then *out is as it was. */
enum status tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t count, bool with_special,
                             struct text *out, struct error *err);

#endif
