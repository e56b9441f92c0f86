/* Finds the tokens that a text can name by their spelling, such as "</s>" or "<|im_start|>". */
#ifndef QUIRE_TOKENIZER_SPECIAL_TOKENS_H
#define QUIRE_TOKENIZER_SPECIAL_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/token_table.h"

struct special_token {
    const char *text; /* [length], owned by the token table */
    uint32_t length;
    int32_t id;
};

struct special_tokens {
    struct special_token *items; /* [count] sorted by first byte, then by length (longest first), then by id */
    size_t count;
    uint32_t first[257]; /* items that start with byte b: first[b] .. first[b + 1] */
};

/* Collects the TOKEN_MATCHED tokens of a table, which must not change afterwards. False if memory ran out. */
bool special_tokens_build(struct special_tokens *specials, const struct token_table *table);
void special_tokens_free(struct special_tokens *specials);

/* The token spelled exactly text[length], or NULL. */
const struct special_token *special_tokens_find(const struct special_tokens *specials, const char *text, size_t length);

/* The first special token in text[length] at or after `from`, the longest one at that place; *at gets the place. NULL:
 * there is none. */
const struct special_token *special_tokens_search(const struct special_tokens *specials, const char *text,
                                                  size_t length, size_t from, size_t *at);

#endif
