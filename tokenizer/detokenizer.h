/* Token ids to text, one token at a time, for streaming. What it emits, joined, is the whole decode; no half UTF-8
 * character ever leaves it, and ill-formed bytes leave as U+FFFD. It allocates nothing. */
#ifndef QUIRE_TOKENIZER_DETOKENIZER_H
#define QUIRE_TOKENIZER_DETOKENIZER_H

#include "tokenizer/tokenizer.h"

struct detokenizer {
    const struct tokenizer *tokenizer;
    bool strip_space;   /* the next text's first space is the one that encoding adds: leave it out */
    bool with_special;  /* emit special tokens as text */
    char pending[4];    /* the beginning of a character whose end has not come */
    int pending_length; /* 0 to 3 between calls */
};

/* at_start: the tokens begin a text (an answer in a chat), so the space before the first word is left out; false where
 * they continue one (a completion of a prompt). */
void detokenizer_init(struct detokenizer *d, const struct tokenizer *t, bool at_start, bool with_special);

/* Longest text that one call of add or finish writes for tokens of `t`, so that callers can size a buffer once. */
size_t detokenizer_max_bytes(const struct tokenizer *t);

/* Writes the complete characters that `id` completes to out (at least detokenizer_max_bytes) and returns how many
 * bytes. Not NUL-terminated. An id that is not in the vocabulary adds nothing. */
size_t detokenizer_add(struct detokenizer *d, int32_t id, char *out);
/* At the end: each byte of an unfinished character, as U+FFFD. Returns how many bytes were written. */
size_t detokenizer_finish(struct detokenizer *d, char *out);

#endif
