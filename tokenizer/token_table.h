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

/* U+2581, which stands for a space in the pieces of SentencePiece and of Metaspace. */
#define SPACE_SYMBOL "\xe2\x96\x81"
enum { SPACE_SYMBOL_LENGTH = sizeof SPACE_SYMBOL - 1 };

enum token_flags {
    TOKEN_SPECIAL = 1, /* shown only on request: control pieces and special added tokens */
    TOKEN_BYTE = 2,    /* one byte of a character that no piece covers */
    TOKEN_LEADING_SPACE =
        4,           /* SENTENCEPIECE: begins with U+2581, a space, which decoding drops at the start of a text */
    TOKEN_ADDED = 8, /* found in a text by its spelling (added_tokens.h) */
    TOKEN_LITERAL_SPACE = 16 /* has a space that does not stand for U+2581, so spaceless_first_token keeps its spaces */
};

struct token {
    uint32_t offset, length; /* its bytes in token_table.bytes: valid UTF-8, but for TOKEN_BYTE and BYTE_LEVEL */
    uint32_t flags;
};

/* How bytes that are no character are decoded. */
enum decoding {
    DECODE_SENTENCEPIECE, /* SentencePiece: each becomes U+FFFD */
    DECODE_BYTE_FALLBACK, /* tokenizers' ByteFallback: all bytes of a run of byte tokens do, if one is in no character
                           */
    DECODE_BYTE_LEVEL     /* tokenizers' ByteLevel: each maximal part of a character becomes one U+FFFD */
};

/* What decoding does besides joining the bytes of tokens. */
struct decoding_rules {
    enum decoding decoding;
    /* SENTENCEPIECE, at the start of a text and after an added token: */
    bool strips_first_space; /* drop one space */
    bool strips_every_space; /* drop all spaces */
    /* The others, at the start of a text: */
    uint32_t strip_spaces;      /* drop so many spaces */
    bool spaceless_first_token; /* drop every space of the first token */
    bool space_between;         /* put a space between tokens */
};

struct token_table {
    struct token *tokens; /* [count] */
    int32_t count;
    size_t capacity;
    struct text bytes;
    size_t longest; /* bytes of the longest token */
    struct decoding_rules rules;
};

/* The pieces of a SentencePiece model. Free with token_table_free, also after a failure. */
enum status token_table_build(struct token_table *table, const struct sentencepiece_model *sp, struct error *err);
void token_table_free(struct token_table *table);

/* Sets the bytes and the flags of token `id`. An id past the end extends the table; the ids between have no bytes.
 * False if memory ran out. */
bool token_table_set(struct token_table *table, int32_t id, const char *bytes, size_t length, uint32_t flags);
/* Sets a token to `text`, with U+FFFD for each byte that is not part of a UTF-8 character. False if memory ran out. */
bool token_table_set_text(struct token_table *table, int32_t id, const char *text, size_t length, uint32_t flags);

/* The token, or an empty one for an id that is not in the table. */
struct token token_table_get(const struct token_table *table, int32_t id);

#endif
