/* Finds added tokens in a text by their spelling, such as "</s>", "<|im_start|>" or a run of spaces, as the added
 * vocabulary of tokenizers 0.23 does: leftmost first, then longest. */
#ifndef QUIRE_TOKENIZER_ADDED_TOKENS_H
#define QUIRE_TOKENIZER_ADDED_TOKENS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/array.h"

enum added_token_flags {
    ADDED_TOKEN_SPECIAL = 1,     /* marks a part of a chat or the end of a text; text of a person never names it */
    ADDED_TOKEN_LSTRIP = 2,      /* takes the white space before it along */
    ADDED_TOKEN_RSTRIP = 4,      /* and after it */
    ADDED_TOKEN_SINGLE_WORD = 8, /* is not found inside a word */
    ADDED_TOKEN_NORMALIZED = 16  /* is looked for in normalized text */
};

struct added_token {
    size_t offset, length; /* bytes of added_tokens.text */
    int32_t id;
    unsigned flags;
};

struct added_tokens {
    struct added_token *items; /* [count] sorted by their bytes after added_tokens_sort */
    size_t count, capacity;
    struct text text;
    uint32_t first[257]; /* items that start with byte b: first[b] .. first[b + 1] */
};

/* Adds a token with a text that is not empty. False if memory ran out. */
bool added_tokens_add(struct added_tokens *a, const char *text, size_t length, int32_t id, unsigned flags);
/* Sorts the tokens, so that they can be found. Of several with the same text the last one added remains. */
void added_tokens_sort(struct added_tokens *a);
void added_tokens_free(struct added_tokens *a);

/* The token spelled exactly text[length], or NULL. */
const struct added_token *added_tokens_find(const struct added_tokens *a, const char *text, size_t length);

/* A text that is searched from front to back. */
struct added_search {
    const char *text; /* [length] */
    size_t length;
    const char *marks; /* [length] 1: no special token has this byte; NULL: no byte is marked */
    bool special;      /* find special tokens at all */
    /* The state of the search, 0 at first: */
    size_t at;         /* where it goes on */
    size_t last_end;   /* of the last match */
    size_t spaces_end; /* of the white space that the last RSTRIP took */
};
struct added_match {
    size_t from, to; /* the bytes that the token takes, white space of LSTRIP and RSTRIP included. `from` may lie before
                        the end of the match before it, which had that white space */
    int32_t id;
};
/* The next token in the text. False: there is none. */
bool added_tokens_next(const struct added_tokens *a, struct added_search *search, struct added_match *out);

#endif
