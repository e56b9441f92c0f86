/* Text to token ids and back, for a checkpoint folder as published: tokenizer.model has the vocabulary,
 * tokenizer_config.json the special tokens, whether a bos is added, and the chat template. A tokenizer never changes
 * once it is open, so several threads may share one.
 *
 * Spaces. A text is encoded with the dummy prefix of its model: "Hello" becomes the pieces of " Hello". The text
 * between two special tokens counts as a text of its own and gets the prefix too, as in Llama's reference code and in
 * llama.cpp. Chats are encoded in the same way (chat_template.h). */
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

/* Opens the tokenizer of a checkpoint folder. Only tokenizer.model is required. add_eos_token is ignored, because a
 * model has nothing to add to a prompt that ends with eos; so are the lstrip, rstrip and normalized marks of added
 * tokens. */
enum status tokenizer_open(const char *folder, struct tokenizer **out, struct error *err);
void tokenizer_close(struct tokenizer *t); /* NULL is allowed */

int32_t tokenizer_size(const struct tokenizer *t);   /* ids are 0 .. size-1, added tokens included */
int32_t tokenizer_bos_id(const struct tokenizer *t); /* -1: none */
int32_t tokenizer_eos_id(const struct tokenizer *t); /* -1: none */
bool tokenizer_adds_bos(const struct tokenizer *t);  /* add_bos_token of tokenizer_config.json; true if it is absent */
/* Control pieces and added tokens marked special are special; the unknown piece is not, because it stands for text. */
bool tokenizer_is_special(const struct tokenizer *t, int32_t id);
/* The id of the special or added token with this text, or -1. */
int32_t tokenizer_special_id(const struct tokenizer *t, const char *text);
const char *tokenizer_chat_template(const struct tokenizer *t); /* Jinja source, or NULL */

/* The bytes that one id adds to a text: [*length], not NUL-terminated, owned by t. U+2581 becomes a space; a byte piece
 * gives its byte; a special token gives nothing unless `with_special`, and an id outside the vocabulary nothing. Never
 * allocates. */
const char *tokenizer_token_bytes(const struct tokenizer *t, int32_t id, bool with_special, size_t *length);

/* The table of all tokens (token_table.h); owned by t. */
const struct token_table *tokenizer_tokens(const struct tokenizer *t);

enum tokenizer_flags {
    TOKENIZER_ADD_BOS = 1,       /* put bos first, if the tokenizer adds one */
    TOKENIZER_PARSE_SPECIAL = 2, /* match special and added tokens in the text, leftmost first, then longest. Without
                                    this flag no text can produce one, whatever it spells */
    TOKENIZER_CONTINUES = 4      /* the text continues an earlier one: no dummy prefix */
};
/* Appends the ids of text[length] to *out; after a failure *out is as it was. */
enum status tokenizer_encode(const struct tokenizer *t, const char *text, size_t length, unsigned flags,
                             struct token_list *out, struct error *err);
/* Appends the text of ids[count] to *out, as SentencePiece decodes it: without the space that encoding put before the
 * first word. Each byte that is not part of a UTF-8 character becomes U+FFFD. With `with_special`, special tokens are
 * shown, and the space after each is removed too, so that a text encoded with TOKENIZER_PARSE_SPECIAL comes back
 * unchanged. Fails on an id outside the vocabulary; then *out is as it was. */
enum status tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t count, bool with_special,
                             struct text *out, struct error *err);

#endif
