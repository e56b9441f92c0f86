/* Token ids to text, one token at a time, for streaming. The pieces of text together equal the decode of all ids. Each
 * piece consists of whole UTF-8 characters; bytes that form none become U+FFFD. Nothing is allocated. */
#ifndef QUIRE_TOKENIZER_DETOKENIZER_H
#define QUIRE_TOKENIZER_DETOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/token_table.h"

/* In a run of byte tokens with a byte that is in no character, each byte is decoded as U+FFFD in BYTE_FALLBACK
 * (token_table.h). So bytes are held back until the run ends or proves to be such a one; but of a longer run than this
 * the characters are written. */
enum { DETOKENIZER_MAX_PENDING = 64 };

struct detokenizer {
    const struct token_table *table;
    bool with_special;                     /* emit special tokens as text */
    bool strip_space;                      /* SENTENCEPIECE: drop the first space of the next token's text */
    bool first;                            /* no token has been added yet, and the tokens begin a text */
    uint32_t strip_spaces;                 /* drop so many spaces at the start of the text */
    bool broken_run;                       /* BYTE_FALLBACK: a byte of this run is in no character */
    char pending[DETOKENIZER_MAX_PENDING]; /* bytes that are not decided yet */
    int pending_length;
};

/* at_start: the tokens begin a text (an answer in a chat), so the space before the first word is dropped; false: they
 * continue a text (the completion of a prompt). The table outlives *d. */
void detokenizer_init(struct detokenizer *d, const struct token_table *table, bool at_start, bool with_special);

/* The most bytes that one call of add or finish writes for tokens of the table. */
size_t detokenizer_max_bytes(const struct token_table *table);

/* Writes the characters that `id` completes to `out`, which has room for detokenizer_max_bytes, without a NUL. Returns
 * the number of bytes. An id outside the vocabulary adds nothing. */
size_t detokenizer_add(struct detokenizer *d, int32_t id, char *out);
/* Ends the text: each byte of an incomplete character becomes U+FFFD. Returns the number of bytes. */
size_t detokenizer_finish(struct detokenizer *d, char *out);

#endif
