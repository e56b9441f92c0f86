/* Token ids to text, one token at a time, for streaming. The pieces of text together equal the decode of all ids. Each
 * piece consists of whole UTF-8 characters; bytes that form none become U+FFFD. Nothing is allocated. */
#ifndef QUIRE_TOKENIZER_DETOKENIZER_H
#define QUIRE_TOKENIZER_DETOKENIZER_H

#include "tokenizer/tokenizer.h"

struct detokenizer {
    const struct tokenizer *tokenizer;
    bool strip_space;   /* drop the first space of the next token's text: encoding added it */
    bool with_special;  /* emit special tokens as text */
    char pending[4];    /* the first bytes of an incomplete character */
    int pending_length; /* 0 to 3 between calls */
};

/* at_start: the tokens begin a text (an answer in a chat), so the space before the first word is dropped; false: they
 * continue a text (the completion of a prompt). */
void detokenizer_init(struct detokenizer *d, const struct tokenizer *t, bool at_start, bool with_special);

/* The most bytes that one call of add or finish writes for tokens of `t`. */
size_t detokenizer_max_bytes(const struct tokenizer *t);

/* Writes the characters that `id` completes to `out`, which has room for detokenizer_max_bytes, without a NUL. Returns
 * the number of bytes. An id outside the vocabulary adds nothing. */
size_t detokenizer_add(struct detokenizer *d, int32_t id, char *out);
/* Ends the text: each byte of an incomplete character becomes U+FFFD. Returns the number of bytes. */
size_t detokenizer_finish(struct detokenizer *d, char *out);

#endif
