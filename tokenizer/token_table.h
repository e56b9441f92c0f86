/* The text and the kind of every token: a flat table, built when the tokenizer is opened, so that decoding neither
 * allocates nor calls SentencePiece. */
#ifndef QUIRE_TOKENIZER_TOKEN_TABLE_H
#define QUIRE_TOKENIZER_TOKEN_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/array.h"
#include "base/status.h"
#include "tokenizer/sentencepiece.h"

enum token_flags {
    TOKEN_SPECIAL = 1,       /* shown only on request: control pieces and special added tokens */
    TOKEN_BYTE = 2,          /* one byte of a character that no piece covers */
    TOKEN_LEADING_SPACE = 4, /* begins with U+2581, a space, which decoding drops at the start of a text */
    TOKEN_MATCHED = 8        /* encoding produces it for its text with TOKENIZER_PARSE_SPECIAL, and never without */
};

struct token {
    uint32_t offset, length; /* its bytes in token_table.bytes: valid UTF-8, TOKEN_BYTE apart */
    uint32_t flags;
};

struct token_table {
    struct token *tokens; /* [count] */
    int32_t count;
    struct text bytes;
    size_t longest;          /* bytes of the longest token */
    bool strips_first_space; /* decoding drops one space at the start of a text */
    bool strips_every_space; /* decoding drops all spaces at the start of a text */
};

/* The pieces of a SentencePiece model. Free with token_table_free, also after a failure. */
enum status token_table_build(struct token_table *table, const struct sentencepiece_model *sp, struct error *err);
void token_table_free(struct token_table *table);

/* Sets the text and the flags of token `id`. An id past the end extends the table; the ids between have no text. False
 * if memory ran out. */
bool token_table_set(struct token_table *table, int32_t id, const char *text, size_t length, uint32_t flags);

/* The token, or an empty one for an id that is not in the table. */
struct token token_table_get(const struct token_table *table, int32_t id);

#endif
